//! What has to be there before anything is measured: the programs, what they are made of, a
//! PostgreSQL server, and for Restate its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use roundel_testpg::{Binaries, Server, Sync, install};

use super::catalogue::{PEERS, Peer, Place, Program, Run, Version};
use super::machine;
use super::options::Options;
use super::program::stop_group;
use crate::steps::cargo;

/// Where the programs of others look for PostgreSQL.
const PORT: u16 = 55_432;
/// Where Restate's server is asked whether it is there.
const RESTATE: &str = "127.0.0.1:19070";

/// Everything that was prepared.
pub(super) struct Ground {
    folder: PathBuf,
    roundel: PathBuf,
    server: Server,
    binaries: Binaries,
    programs: bool,
    /// What was tried to prepare, by name, and why it failed.
    tried: RefCell<BTreeMap<String, Result<(), String>>>,
}

/// A peer that can be measured now; what runs for it alone goes with this value.
pub(super) struct Ready<'a> {
    ground: &'a Ground,
    restate: Option<Restate>,
}

/// Restate's server, which goes when this value goes.
struct Restate {
    child: std::process::Child,
}

impl Drop for Restate {
    fn drop(&mut self) {
        stop_group(self.child.id());
        let _ = self.child.wait();
    }
}

impl Ground {
    pub(super) fn prepare(root: &Path, options: &Options) -> Result<Ground, String> {
        println!("building the `roundel` command");
        let built = cargo(
            root,
            &["build", "--release", "--quiet", "--package", "roundel-cli"],
        )
        .status()
        .is_ok_and(|status| status.success());
        if !built {
            return Err("error: the `roundel` command could not be built".to_owned());
        }
        let folder = root.join("target/peers");
        fs::create_dir_all(&folder).map_err(|error| format!("error: target/peers: {error}"))?;
        let programs = copied(&options.programs, &folder);
        if !programs {
            println!(
                "      no programs of others in {}; name their folder with --programs",
                options.programs.display()
            );
        }
        let server = binaries_of_server().and_then(|binaries| {
            let server = Server::open_at(&binaries, Sync::On, PORT);
            server
                .map(|server| (server, binaries))
                .map_err(|why| why.to_string())
        });
        let (server, binaries) = server.map_err(|why| format!("error: no PostgreSQL: {why}"))?;
        Ok(Ground {
            roundel: root.join("target/release/roundel"),
            folder,
            server,
            binaries,
            programs,
            tried: RefCell::default(),
        })
    }

    /// Makes sure that a peer can be measured.
    pub(super) fn ready(&self, peer: &Peer) -> Result<Ready<'_>, String> {
        if peer.program != Program::Roundel && !self.programs {
            return Err("its program is not here".to_owned());
        }
        match peer.program {
            Program::Roundel => {}
            Program::Cargo(folder, _) => self.once(folder, || self.build(folder))?,
            Program::Node(_) => self.once("npm", || self.npm())?,
            Program::Python(_) => self.once("pip", || self.pip())?,
        }
        let mut restate = None;
        match peer.name {
            "restate" => {
                self.once("npm", || self.npm())?;
                restate = Some(self.restate()?);
            }
            "absurd" => {
                self.once("pip", || self.pip())?;
                self.once("absurd", || self.absurd())?;
            }
            _ => {}
        }
        Ok(Ready {
            ground: self,
            restate,
        })
    }

    fn once(&self, name: &str, act: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        if let Some(done) = self.tried.borrow().get(name) {
            return done.clone();
        }
        println!("      preparing {name}");
        let done = act();
        self.tried
            .borrow_mut()
            .insert(name.to_owned(), done.clone());
        done
    }

    fn build(&self, folder: &str) -> Result<(), String> {
        let folder = self.folder.join(folder);
        let mut command = cargo(&folder, &["build", "--release", "--quiet"]);
        command.env_remove("CARGO_TARGET_DIR");
        quietly(command, "cargo build")
    }

    fn npm(&self) -> Result<(), String> {
        let mut command = Command::new("npm");
        command.args(["install", "--no-audit", "--no-fund", "--silent"]);
        command.current_dir(self.folder.join("node"));
        quietly(command, "npm install")
    }

    fn pip(&self) -> Result<(), String> {
        let mut command = Command::new("python3");
        command
            .args(["-m", "venv", "venv"])
            .current_dir(&self.folder);
        quietly(command, "python3 -m venv")?;
        let mut command = Command::new(self.folder.join("venv/bin/pip"));
        command.args(["install", "--quiet", "-r", "requirements.txt"]);
        command.current_dir(&self.folder);
        quietly(command, "pip install")
    }

    /// Its tables, in a database of its own.
    fn absurd(&self) -> Result<(), String> {
        let mut command = Command::new(self.binaries.program("createdb"));
        command.arg("absurd");
        self.name_server(&mut command);
        quietly(command, "createdb")?;
        let mut command = Command::new(self.folder.join("venv/bin/absurdctl"));
        command.args(["init", "-d", "absurd"]);
        self.name_server(&mut command);
        quietly(command, "absurdctl init")
    }

    fn restate(&self) -> Result<Restate, String> {
        use std::os::unix::process::CommandExt;
        let program = "node/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server";
        let data = self.folder.join("restate-data");
        let _ = fs::remove_dir_all(&data);
        let mut command = Command::new(self.folder.join(program));
        command.arg("--base-dir").arg(&data).arg("--no-logo");
        command.envs([
            ("RESTATE_BIND_IP", "127.0.0.1"),
            ("RESTATE_LISTEN_MODE", "tcp"),
            ("RESTATE_INGRESS__BIND_PORT", "18080"),
            ("RESTATE_ADMIN__BIND_PORT", "19070"),
            ("RESTATE_BIND_PORT", "15122"),
            ("RESTATE_ADVERTISED_HOST", "127.0.0.1"),
            ("RESTATE_DISABLE_TELEMETRY", "true"),
            ("DO_NOT_TRACK", "1"),
        ]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.process_group(0).spawn();
        let child = child.map_err(|error| format!("restate-server: {error}"))?;
        let restate = Restate { child };
        for _ in 0..120 {
            if TcpStream::connect(RESTATE).is_ok() {
                // It listens a moment before it serves.
                thread::sleep(Duration::from_secs(4));
                return Ok(restate);
            }
            thread::sleep(Duration::from_millis(500));
        }
        Err("restate-server did not come up within a minute".to_owned())
    }

    fn name_server(&self, command: &mut Command) {
        command.env("PGHOST", "127.0.0.1").env("PGUSER", "postgres");
        command.env("PGPORT", self.server.port().to_string());
        let path = std::env::var("PATH").unwrap_or_default();
        let tools = self.binaries.program("createdb");
        let tools = tools.parent().unwrap_or(Path::new("/")).display();
        command.env("PATH", format!("{tools}:{path}"));
    }

    /// What was measured on, a line each.
    pub(super) fn machine(&self) -> Vec<String> {
        let mut lines = super::described(&self.binaries.program("postgres"));
        lines.push(format!(
            "Run by Node {}; {}.",
            machine::said("node", &["--version"]),
            machine::said("python3", &["--version"])
        ));
        let versions = PEERS.iter().map(|peer| match self.version(peer) {
            Some(version) => format!("{} {version}", peer.name),
            None => format!("{} (version unknown)", peer.name),
        });
        let versions: Vec<String> = versions.collect();
        lines.push(format!("Versions: {}.", versions.join(", ")));
        lines
    }

    fn version(&self, peer: &Peer) -> Option<String> {
        match peer.version {
            Version::Roundel => {
                let said = machine::said(&self.roundel.to_string_lossy(), &["--version"]);
                said.split_whitespace().last().map(str::to_owned)
            }
            Version::Npm(name) => {
                let file = format!("node/node_modules/{name}/package.json");
                let text = fs::read_to_string(self.folder.join(file)).ok()?;
                let package: serde_json::Value = serde_json::from_str(&text).ok()?;
                package.get("version")?.as_str().map(str::to_owned)
            }
            Version::Pip(name) => {
                let text = fs::read_to_string(self.folder.join("requirements.txt")).ok()?;
                let line = text.lines().find_map(|line| line.strip_prefix(name))?;
                line.strip_prefix("==").map(str::to_owned)
            }
            Version::Cargo(name) => {
                let Program::Cargo(folder, _) = peer.program else {
                    return None;
                };
                let lock = self.folder.join(folder).join("Cargo.lock");
                locked(&fs::read_to_string(lock).ok()?, name)
            }
        }
    }
}

/// The version of a package in a lock file.
pub(super) fn locked(lock: &str, name: &str) -> Option<String> {
    let wanted = format!("name = \"{name}\"");
    let mut lines = lock.lines().skip_while(|line| *line != wanted);
    let version = lines.nth(1)?.strip_prefix("version = \"")?;
    version.strip_suffix('"').map(str::to_owned)
}

impl Ready<'_> {
    /// The program of a peer, about to do this work.
    pub(super) fn command(&self, peer: &Peer, run: &Run, options: &Options) -> Command {
        let ground = self.ground;
        let folder = &ground.folder;
        let mut command = match peer.program {
            Program::Roundel => Command::new(&ground.roundel),
            Program::Cargo(at, name) => {
                Command::new(folder.join(at).join("target/release").join(name))
            }
            Program::Node(script) => {
                let mut command = Command::new("node");
                command.arg(folder.join(script));
                command
            }
            Program::Python(script) => {
                let mut command = Command::new(folder.join("venv/bin/python"));
                command.arg(folder.join(script));
                command
            }
        };
        command.current_dir(folder);
        command.env("RUST_LOG", "off").env("RUST_BACKTRACE", "0");
        // A line of figures is to come when it is said.
        command.env("PYTHONUNBUFFERED", "1");
        ground.name_server(&mut command);
        command.envs(run.environment.iter().copied());
        if let Some(restate) = &self.restate {
            command.env("RESTATE_PID", restate.child.id().to_string());
        }
        if peer.program == Program::Roundel {
            command.arg("bench").args(run.arguments).arg("--json");
            match peer.place {
                Place::Postgres => command.arg("--db").arg(ground.server.address()),
                Place::Sqlite | Place::Own => command.arg("--dir").arg(folder),
            };
            return command;
        }
        command.args(run.arguments);
        if let Some(units) = run.units {
            let units = if options.quick { units / 10 } else { units };
            command.arg(units.max(2).to_string());
        }
        command
    }
}

pub(crate) fn binaries_of_server() -> Result<Binaries, String> {
    let found = Binaries::find().or_else(|_| install());
    found.map_err(|why| why.to_string())
}

/// Copies the programs, which may lie where nothing can be built; what was built stays.
fn copied(from: &Path, to: &Path) -> bool {
    if !from.is_dir() {
        return false;
    }
    let Ok(entries) = fs::read_dir(from) else {
        return false;
    };
    for entry in entries.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let done = if source.is_dir() {
            fs::create_dir_all(&target).is_ok() && copied(&source, &target)
        } else {
            // A file that has not changed keeps its time, so that nothing is built again.
            fs::read(&source).is_ok_and(|text| {
                fs::read(&target).is_ok_and(|there| there == text)
                    || fs::write(&target, text).is_ok()
            })
        };
        if !done {
            return false;
        }
    }
    true
}

fn quietly(mut command: Command, what: &str) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{what}` could not be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(format!("`{what}` failed: {}", last.unwrap_or_default()))
}
