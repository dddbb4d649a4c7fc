//! `cargo xtask growth`: what stored and waiting runs, long journals, large fan-outs and more
//! processes cost, on both stores, as plots.
//!
//! `roundel bench growth` measures, an axis at a time; what it said is kept beside the plots, so
//! that an axis can be measured anew by itself. Nothing is worked out here but where a point goes.

mod page;
mod plot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use roundel_testpg::{Server, Sync};
use serde_json::{Value, json};

use crate::peers::{binaries_of_server, described, output};
use crate::steps::cargo;

/// Where the page and its pictures are written.
const REFERENCE: &str = "docs/reference";
/// The same for sizes that only show whether everything runs.
const TRIED: &str = "target/growth";
/// An axis that takes longer has hung.
const PATIENCE: Duration = Duration::from_secs(3600);
const PORT: u16 = 55_442;

/// What grows, and how it is asked for.
#[derive(Debug)]
struct Axis {
    /// Its name on the command line of `bench growth`, and of the pictures.
    name: &'static str,
    /// What its figures are called.
    figures: &'static [&'static str],
    sizes: &'static str,
    quick: &'static str,
    turns: &'static str,
    /// Whether one file can have it.
    on_sqlite: bool,
}

const AXES: &[Axis] = &[
    Axis {
        name: "stored",
        figures: &["stored"],
        sizes: "0,10000,100000,1000000,10000000",
        quick: "0,1000,10000",
        turns: "10",
        on_sqlite: true,
    },
    Axis {
        name: "waiting",
        figures: &["waiting"],
        sizes: "0,1000,10000,100000,1000000",
        quick: "0,100,1000",
        turns: "10",
        on_sqlite: true,
    },
    Axis {
        name: "journal",
        figures: &["journal", "replay"],
        sizes: "10,100,1000,10000,50000",
        quick: "10,100,1000",
        turns: "2",
        on_sqlite: true,
    },
    Axis {
        name: "children",
        figures: &["children"],
        sizes: "10,100,1000,10000",
        quick: "10,100",
        turns: "5",
        on_sqlite: true,
    },
    Axis {
        name: "workers",
        figures: &["workers"],
        sizes: "1,2,4,8",
        quick: "1,2",
        turns: "10",
        on_sqlite: false,
    },
];

const STORES: &[&str] = &["sqlite", "postgres"];

/// One size, as `bench growth` says it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    size: u64,
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    ratio: f64,
}

impl Point {
    fn read(value: &Value) -> Option<Point> {
        let number = |name: &str| value.get(name)?.as_f64();
        Some(Point {
            size: value.get("size")?.as_u64()?,
            per_second: number("per_second")?,
            p50_us: number("p50_us")?,
            p99_us: number("p99_us")?,
            ratio: number("ratio")?,
        })
    }

    fn written(&self) -> Value {
        json!({
            "size": self.size, "per_second": self.per_second, "p50_us": self.p50_us,
            "p99_us": self.p99_us, "ratio": self.ratio,
        })
    }
}

/// Everything that is known: for each of the figures, points by store.
#[derive(Debug, Default, PartialEq)]
struct Known {
    machine: Vec<String>,
    figures: BTreeMap<String, Stores>,
}

/// Points by store.
type Stores = BTreeMap<String, Vec<Point>>;

impl Known {
    fn read(text: &str) -> Option<Known> {
        let value: Value = serde_json::from_str(text).ok()?;
        let lines = value.get("machine")?.as_array()?.iter();
        let machine = lines.map(|line| line.as_str().map(str::to_owned));
        let mut known = Known {
            machine: machine.collect::<Option<_>>()?,
            figures: BTreeMap::new(),
        };
        for (name, stores) in value.get("figures")?.as_object()? {
            let of = known.figures.entry(name.clone()).or_default();
            for (store, points) in stores.as_object()? {
                let points = points.as_array()?.iter().map(Point::read);
                of.insert(store.clone(), points.collect::<Option<_>>()?);
            }
        }
        Some(known)
    }

    fn written(&self) -> String {
        let of = |stores: &Stores| -> Value {
            let written = |points: &Vec<Point>| points.iter().map(Point::written).collect();
            let stores = stores
                .iter()
                .map(|(store, points)| (store.clone(), written(points)));
            Value::Object(stores.collect())
        };
        let figures = self
            .figures
            .iter()
            .map(|(name, stores)| (name.clone(), of(stores)));
        let figures = Value::Object(figures.collect());
        let value = json!({ "machine": self.machine, "figures": figures });
        format!("{value:#}\n")
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// Axes; empty for all.
    only: Vec<String>,
    /// Stores; empty for all.
    stores: Vec<String>,
    quick: bool,
    /// Nothing is measured: the page is drawn from what is known.
    draw: bool,
    /// Seconds that one database may take to be filled.
    filling: String,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options, String> {
        let mut options = Options {
            only: Vec::new(),
            stores: Vec::new(),
            quick: false,
            draw: false,
            filling: "300".to_owned(),
        };
        let axes: Vec<&str> = AXES.iter().map(|axis| axis.name).collect();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || {
                let missing = || format!("error: `{argument}` needs a value");
                rest.next().ok_or_else(missing)
            };
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--draw" => options.draw = true,
                "--only" => options.only = names(value()?, &axes)?,
                "--store" => options.stores = names(value()?, STORES)?,
                "--filling" => options.filling = seconds(value()?)?,
                unknown => {
                    return Err(format!(
                        "error: `growth` does not know `{unknown}`; it takes --only AXIS,AXIS, \
                         --store STORE, --filling SECONDS, --quick and --draw"
                    ));
                }
            }
        }
        Ok(options)
    }

    fn asks_for(&self, axis: &Axis, store: &str) -> bool {
        let asked = |list: &[String], name| list.is_empty() || list.iter().any(|one| one == name);
        let can = axis.on_sqlite || store != "sqlite";
        can && asked(&self.only, axis.name) && asked(&self.stores, store)
    }
}

fn names(value: &str, known: &[&str]) -> Result<Vec<String>, String> {
    let asked: Vec<String> = value.split(',').map(str::to_owned).collect();
    match asked.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(asked),
        Some(name) => Err(format!("error: not `{name}` but {}", known.join(", "))),
    }
}

fn seconds(value: &str) -> Result<String, String> {
    match value.parse::<u32>() {
        Ok(_) => Ok(value.to_owned()),
        Err(_) => Err(format!("error: --filling takes seconds, not `{value}`")),
    }
}

/// Runs the command; false if something could not be measured.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let options = Options::parse(arguments)?;
    let reference = match options.quick {
        true => root.join(TRIED),
        false => root.join(REFERENCE),
    };
    let folder = reference.join("growth");
    fs::create_dir_all(&folder).map_err(|error| format!("error: {}: {error}", folder.display()))?;
    let file = folder.join("figures.json");
    let known = fs::read_to_string(&file).ok();
    let mut known = known
        .and_then(|text| Known::read(&text))
        .unwrap_or_default();
    let mut whole = true;
    if !options.draw {
        let bench = Bench::prepare(root)?;
        known.machine = described(&bench.server);
        for store in STORES {
            for axis in AXES.iter().filter(|axis| options.asks_for(axis, store)) {
                whole &= measure((axis, store), &bench, &options, &mut known);
                // What there is so far, should the next not end.
                write(&reference, &known)?;
            }
        }
    }
    write(&reference, &known)?;
    println!("written to {}", reference.join("growth.md").display());
    Ok(whole)
}

/// The page, its pictures, and what they were drawn from.
fn write(reference: &Path, known: &Known) -> Result<(), String> {
    let folder = reference.join("growth");
    let put = |file: PathBuf, text: String| {
        fs::write(&file, text).map_err(|error| format!("error: {}: {error}", file.display()))
    };
    put(folder.join("figures.json"), known.written())?;
    for (name, stores) in &known.figures {
        put(folder.join(format!("{name}.svg")), plot::svg(name, stores))?;
    }
    put(reference.join("growth.md"), page::page(known))
}

/// The program that measures, and a server for it.
struct Bench {
    roundel: PathBuf,
    folder: PathBuf,
    address: String,
    server: PathBuf,
    /// It goes when this value goes.
    _running: Server,
}

impl Bench {
    fn prepare(root: &Path) -> Result<Bench, String> {
        println!("building the `roundel` command");
        let build = ["build", "--release", "--quiet", "--package", "roundel-cli"];
        if !cargo(root, &build)
            .status()
            .is_ok_and(|status| status.success())
        {
            return Err("error: the `roundel` command could not be built".to_owned());
        }
        let binaries = binaries_of_server()?;
        let running = Server::open_at(&binaries, Sync::On, PORT);
        let running = running.map_err(|why| format!("error: no PostgreSQL: {why}"))?;
        let folder = root.join(TRIED);
        fs::create_dir_all(&folder).map_err(|error| format!("error: {TRIED}: {error}"))?;
        Ok(Bench {
            roundel: root.join("target/release/roundel"),
            folder,
            address: running.address().to_owned(),
            server: binaries.program("postgres"),
            _running: running,
        })
    }

    fn command(&self, (axis, store): (&Axis, &str), options: &Options) -> Command {
        let mut command = Command::new(&self.roundel);
        let (sizes, turns) = match options.quick {
            true => (axis.quick, "2"),
            false => (axis.sizes, axis.turns),
        };
        command.args(["bench", "growth", "--json", "--only", axis.name]);
        command.args([&format!("--{}", axis.name), sizes, "--turns", turns]);
        command.args(["--filling", &options.filling]);
        match store {
            "postgres" => command.arg("--db").arg(&self.address),
            _ => command.arg("--dir").arg(&self.folder),
        };
        command
    }
}

fn measure(
    (axis, store): (&Axis, &str),
    bench: &Bench,
    options: &Options,
    known: &mut Known,
) -> bool {
    let begun = Instant::now();
    let said = output(bench.command((axis, store), options), PATIENCE);
    let took = begun.elapsed().as_secs();
    let read = said.and_then(|said| {
        let points = |figure: &&'static str| Ok((*figure, points(&said, figure)?));
        axis.figures
            .iter()
            .map(points)
            .collect::<Result<Vec<_>, String>>()
    });
    match read {
        Ok(read) => {
            println!("      {} on {store}: {took} s", axis.name);
            for (figure, points) in read {
                for point in &points {
                    println!("        {figure}: {point:?}");
                }
                let stores = known.figures.entry(figure.to_owned()).or_default();
                stores.insert(store.to_owned(), points);
            }
            true
        }
        Err(why) => {
            println!("      {} on {store}: not measured: {why}", axis.name);
            false
        }
    }
}

/// The points of a figure, in the one object that is printed.
fn points(said: &str, figure: &str) -> Result<Vec<Point>, String> {
    let line = said.lines().find(|line| line.starts_with('{'));
    let object: Value = serde_json::from_str(line.ok_or("it printed no figures")?)
        .map_err(|error| error.to_string())?;
    let points = object.get(figure).and_then(Value::as_array);
    let points: Option<Vec<Point>> = points.and_then(|all| all.iter().map(Point::read).collect());
    match points {
        Some(points) if !points.is_empty() => Ok(points),
        _ => Err(format!("it has no points of `{figure}`")),
    }
}
