//! Puts a `Disk` between SQLite and the file system: the default VFS with a few of its functions
//! replaced. Files in folders without a `Disk` are untouched.
//!
//! The only unsafe code of the project: SQLite takes file systems as tables of C functions. Each
//! block relies on SQLite's contract for them (a file is used between its open and its close only,
//! and buffers are as long as it says), and nothing panics in here: that would unwind into C.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::ffi;

use super::{Act, Disk, Fate};

/// A file that SQLite has open.
#[derive(Clone)]
struct Open {
    disk: Arc<Disk>,
    name: String,
}

/// The real functions of a kind of file, and those that it has here.
struct Tables {
    /// Where the real ones lie.
    at: usize,
    real: ffi::sqlite3_io_methods,
    ours: ffi::sqlite3_io_methods,
}

/// What was there before, and what stands in for it.
struct Shim {
    /// The address of the default VFS, which lives as long as the process.
    vfs: usize,
    open: unsafe extern "C" fn(
        *mut ffi::sqlite3_vfs,
        *const c_char,
        *mut ffi::sqlite3_file,
        c_int,
        *mut c_int,
    ) -> c_int,
    delete: unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *const c_char, c_int) -> c_int,
}

static SHIM: OnceLock<Shim> = OnceLock::new();
static TABLES: Mutex<Vec<&'static Tables>> = Mutex::new(Vec::new());
static DISKS: Mutex<Vec<(PathBuf, Arc<Disk>)>> = Mutex::new(Vec::new());
/// Files by their addresses.
static FILES: OnceLock<Mutex<HashMap<usize, (Open, &'static Tables)>>> = OnceLock::new();

fn files() -> MutexGuard<'static, HashMap<usize, (Open, &'static Tables)>> {
    let files = FILES.get_or_init(Mutex::default).lock();
    files.unwrap_or_else(PoisonError::into_inner)
}

fn disks() -> MutexGuard<'static, Vec<(PathBuf, Arc<Disk>)>> {
    DISKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, the files of this folder lie on this disk.
pub(super) fn mount(folder: &Path, disk: &Arc<Disk>) {
    SHIM.get_or_init(install);
    disks().push((folder.to_owned(), Arc::clone(disk)));
}

/// They lie on the file system again.
pub(super) fn unmount(folder: &Path) {
    disks().retain(|(mounted, _)| mounted != folder);
}

fn install() -> Shim {
    // SAFETY: the default VFS is there as soon as SQLite is initialized, and is never freed. The
    // copy that takes its place is leaked, so it stays valid too; it keeps the private data.
    unsafe {
        ffi::sqlite3_initialize();
        let real = ffi::sqlite3_vfs_find(std::ptr::null());
        let shim = Shim {
            vfs: real as usize,
            open: (*real).xOpen.unwrap(),
            delete: (*real).xDelete.unwrap(),
        };
        let mut copy = *real;
        copy.pNext = std::ptr::null_mut();
        copy.zName = c"roundel-test".as_ptr();
        copy.xOpen = Some(open);
        copy.xDelete = Some(delete);
        ffi::sqlite3_vfs_register(Box::leak(Box::new(copy)), 1);
        shim
    }
}

/// The disk and the file's name on it.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn find(name: *const c_char) -> Option<Open> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as the caller says.
    let name = unsafe { CStr::from_ptr(name) };
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let folder = path.parent()?;
    let disks = disks();
    let (_, disk) = disks.iter().find(|(mounted, _)| mounted == folder)?;
    Some(Open {
        disk: Arc::clone(disk),
        name: path.file_name()?.to_str()?.to_owned(),
    })
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let Some(shim) = SHIM.get() else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: SQLite gives a name or null, and room for a file of the real VFS, whose size the
    // copy has kept; the real VFS gets its own address and what it would have got without us.
    // The table of functions that it sets lives for ever, as does ours.
    unsafe {
        let found = find(name);
        if let Some(open) = &found
            && let Fate::Fail(code) = open.disk.act(&open.name, &Act::Open)
        {
            (*file).pMethods = std::ptr::null();
            return code;
        }
        let code = (shim.open)(shim.vfs as *mut _, name, file, flags, out);
        if code == ffi::SQLITE_OK
            && let Some(open) = found
        {
            let tables = tables((*file).pMethods as usize, *(*file).pMethods);
            (*file).pMethods = &raw const tables.ours;
            files().insert(file as usize, (open, tables));
        }
        code
    }
}

/// Made once for each kind of file, and kept for ever.
fn tables(at: usize, real: ffi::sqlite3_io_methods) -> &'static Tables {
    let mut known = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tables) = known.iter().find(|tables| tables.at == at) {
        return tables;
    }
    let ours = ffi::sqlite3_io_methods {
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        ..real
    };
    let tables = Box::leak(Box::new(Tables { at, real, ours }));
    known.push(tables);
    tables
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    let Some(shim) = SHIM.get() else {
        return ffi::SQLITE_IOERR_DELETE;
    };
    // SAFETY: SQLite gives a name; the real VFS gets its own address.
    unsafe {
        if let Some(open) = find(name)
            && let Fate::Fail(code) = open.disk.act(&open.name, &Act::Delete(sync != 0))
        {
            return code;
        }
        (shim.delete)(shim.vfs as *mut _, name, sync)
    }
}

/// The file's place, and the real functions: there, because only files that were opened get ours.
fn about(file: *mut ffi::sqlite3_file) -> Option<(Open, &'static ffi::sqlite3_io_methods)> {
    let files = files();
    let (open, tables) = files.get(&(file as usize))?;
    Some((open.clone(), &tables.real))
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let closed = files().remove(&(file as usize));
    match closed.and_then(|(_, tables)| tables.real.xClose) {
        // SAFETY: the real VFS made this file, and it is closed once.
        Some(real) => unsafe { real(file) },
        None => ffi::SQLITE_IOERR_CLOSE,
    }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    match about(file) {
        Some((open, real)) if !open.disk.fails_read() => match real.xRead {
            // SAFETY: passed on as it came.
            Some(real) => unsafe { real(file, to, amount, offset) },
            None => ffi::SQLITE_IOERR_READ,
        },
        _ => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let Some((open, real)) = about(file) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    let (Some(real), Ok(length), Ok(place)) = (
        real.xWrite,
        usize::try_from(amount),
        usize::try_from(offset),
    ) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: SQLite gives so many bytes; of a torn write, the first of them are passed on.
    unsafe {
        let bytes = std::slice::from_raw_parts(from.cast::<u8>(), length);
        match open.disk.act(&open.name, &Act::Write(place, bytes)) {
            Fate::Pass => real(file, from, amount, offset),
            Fate::Part(first, code) => {
                let first = c_int::try_from(first).unwrap_or(0);
                match real(file, from, first, offset) {
                    ffi::SQLITE_OK => code,
                    other => other,
                }
            }
            Fate::Fail(code) => code,
        }
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    let (Some((open, real)), Ok(length)) = (about(file), usize::try_from(size)) else {
        return ffi::SQLITE_IOERR_TRUNCATE;
    };
    match (
        open.disk.act(&open.name, &Act::Truncate(length)),
        real.xTruncate,
    ) {
        // SAFETY: passed on as it came.
        (Fate::Pass, Some(real)) => unsafe { real(file, size) },
        (Fate::Fail(code) | Fate::Part(_, code), _) => code,
        (Fate::Pass, None) => ffi::SQLITE_IOERR_TRUNCATE,
    }
}

/// The model says what is on disk; waiting for a real one would only take time.
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    match about(file).map(|(open, _)| open.disk.act(&open.name, &Act::Sync)) {
        Some(Fate::Pass) => ffi::SQLITE_OK,
        Some(Fate::Fail(code) | Fate::Part(_, code)) => code,
        None => ffi::SQLITE_IOERR_FSYNC,
    }
}
