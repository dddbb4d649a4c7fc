//! Where objects are kept: a folder here; a bucket, a key-value store or a shared drive elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A place for objects that knows nothing of transactions. Each call concerns one object; what it
/// did is durable, and seen by everybody, when it returns. A call that fails may have been done.
///
/// Keys are made of `a-z`, `0-9`, `-` and `/`. Calls may wait: they come from a thread that waits
/// for nothing else.
pub trait Objects: Send + Sync + 'static {
    /// The whole object, or none.
    ///
    /// # Errors
    /// When it cannot be read now.
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>>;

    /// Makes an object, whole or not at all. One that is there stays as it is, and the answer is
    /// no: of several that make the same one at once, exactly one is told yes.
    ///
    /// # Errors
    /// When it is not known to be there.
    fn make(&self, key: &str, bytes: &[u8]) -> io::Result<bool>;

    /// The keys that begin with this, in any order. All that were made before are among them.
    ///
    /// # Errors
    /// When they cannot be listed now.
    fn list(&self, prefix: &str) -> io::Result<Vec<String>>;

    /// Removes an object. One that is not there is fine.
    ///
    /// # Errors
    /// When it may still be there.
    fn remove(&self, key: &str) -> io::Result<()>;
}

/// Objects as files of a folder. A file is written under another name, synced, and then linked to
/// its own: whoever sees it sees all of it.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    written: AtomicU64,
}

/// Where files are written before they have a name of their own.
const UNNAMED: &str = "unnamed";

impl Folder {
    /// This folder, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Folder> {
        let root = root.into();
        fs::create_dir_all(root.join(UNNAMED))?;
        let written = AtomicU64::new(0);
        Ok(Folder { root, written })
    }

    fn write(&self, to: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(to)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// A name is durable once its folder is.
    fn sync_folder_of(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(&self.root);
        File::open(folder)?.sync_all()
    }

    fn collect(&self, folder: &Path, prefix: &str, into: &mut Vec<String>) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                self.collect(&path, prefix, into)?;
                continue;
            }
            let key = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
            into.extend(key.filter(|key| key.starts_with(prefix)).map(str::to_owned));
        }
        Ok(())
    }
}

impl Objects for Folder {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.root.join(key)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn make(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        let path = self.root.join(key);
        if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
            fs::create_dir_all(folder)?;
            self.sync_folder_of(folder)?;
        }
        let nth = self.written.fetch_add(1, Ordering::Relaxed);
        let own = format!("{}-{nth}-{}", std::process::id(), uuid::Uuid::new_v4());
        let unnamed = self.root.join(UNNAMED).join(own);
        self.write(&unnamed, bytes)?;
        let linked = fs::hard_link(&unnamed, &path);
        // What is left of it after a crash disturbs nobody.
        let _ = fs::remove_file(&unnamed);
        match linked {
            Ok(()) => self.sync_folder_of(&path).map(|()| true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut keys = Vec::new();
        self.collect(&self.root.join(folder), prefix, &mut keys)?;
        Ok(keys)
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        match fs::remove_file(self.root.join(key)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
