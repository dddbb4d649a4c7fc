//! The browser of the tests, and the pictures that they take.
//!
//! One that is named in the environment, or else one of this machine, or else the distribution's
//! package, which is installed if this process is the administrator's. Where none of these works,
//! tests that need one are counted as untested; on a build machine the run fails.

use std::path::Path;

use crate::steps::cargo;

/// Where the guide has its pictures.
const PICTURES: &str = "docs/guide/pictures";

/// Makes sure that there is one.
///
/// # Errors
/// When there must be one, and there is none: said.
pub(crate) fn ready() -> Result<(), ()> {
    match roundel_testweb::find().or_else(|_| roundel_testweb::install()) {
        Ok(_) => Ok(()),
        Err(why) => {
            println!("      without a browser: {why}");
            if roundel_testpg::is_ci() {
                Err(())
            } else {
                Ok(())
            }
        }
    }
}

/// Takes the pictures of the guide anew, with the test that drives the demo.
pub(crate) fn take_pictures(root: &Path) -> bool {
    if ready().is_err() {
        return false;
    }
    let test = [
        "test",
        "--package",
        "roundel-cli",
        "--test",
        "it",
        "browser::",
    ];
    let mut command = cargo(root, &test);
    command.env("ROUNDEL_PICTURES", root.join(PICTURES));
    command.status().is_ok_and(|status| status.success())
}
