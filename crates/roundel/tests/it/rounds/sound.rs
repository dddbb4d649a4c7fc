//! What must be true of every database after every test.

use roundel_store::Dump;

use crate::support::{Db, sound};

/// Every row of the database, checked.
pub async fn assert_sound(db: &Db) -> Dump {
    let store = db.open();
    sound(&*store).await;
    drop(store);
    db.dump().await
}
