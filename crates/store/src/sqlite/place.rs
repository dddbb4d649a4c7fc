//! On which file systems a database may lie. In WAL mode all processes share memory through a file
//! beside it, which does not work over a network.

use std::path::Path;

use crate::Error;

/// File systems that are remote, or pretend that locks and shared memory work.
#[cfg(target_os = "linux")]
const REMOTE: [(u32, &str); 12] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x564C, "NCP"),
    (0x0116_1970, "GFS2"),
];

/// Refuses a file system without shared memory.
#[cfg(target_os = "linux")]
pub(super) fn check(path: &Path) -> Result<(), Error> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let place = if path.exists() { path } else { folder };
    let found = rustix::fs::statfs(place).map_err(|error| {
        Error::Unusable(format!(
            "the folder of {} cannot be used: {error}",
            path.display()
        ))
    })?;
    check_kind(path, found.f_type as u32)
}

#[cfg(target_os = "linux")]
fn name_of(kind: u32) -> Option<&'static str> {
    let known = REMOTE.iter().find(|(number, _)| *number == kind);
    known.map(|(_, name)| *name)
}

/// The file system that a file lies on, if it is one without shared memory.
#[cfg(target_os = "linux")]
pub(super) fn remote(path: &Path) -> Option<&'static str> {
    name_of(rustix::fs::statfs(path).ok()?.f_type as u32)
}

/// Elsewhere nobody knows.
#[cfg(not(target_os = "linux"))]
pub(super) fn remote(_: &Path) -> Option<&'static str> {
    None
}

#[cfg(target_os = "linux")]
fn check_kind(path: &Path, kind: u32) -> Result<(), Error> {
    let Some(name) = name_of(kind) else {
        return Ok(());
    };
    Err(Error::Unusable(format!(
        "the database {} lies on {name}, where processes cannot share memory and a crash can \
         corrupt it; use a local disk, or allow network file systems in the options \
         if exactly one process uses it",
        path.display()
    )))
}

/// Elsewhere the database itself refuses what has no shared memory.
#[cfg(not(target_os = "linux"))]
pub(super) fn check(_: &Path) -> Result<(), Error> {
    Ok(())
}

/// Bytes that are free where this file lies, for whoever is not the administrator.
#[cfg(target_os = "linux")]
pub(super) fn free(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Elsewhere the disk will tell.
#[cfg(not(target_os = "linux"))]
pub(super) fn free(_: &Path) -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn g8_remote_file_systems_are_refused_by_name_and_local_ones_are_not() {
        for (kind, name) in REMOTE {
            let error = check_kind(Path::new("a.db"), kind).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630] {
            assert_eq!(check_kind(Path::new("a.db"), local), Ok(()));
        }
        let here = tempfile::tempdir().unwrap();
        assert_eq!(check(&here.path().join("new.db")), Ok(()));
    }
}
