//! Which run is meant: by its id, by its key, or by the beginning of its id.

use clap::Args;
use roundel::{Client, RunId, RunView, To};

use crate::exit::{Exit, Failed, Result};

/// Fewer digits of an id are too likely to be meant as a key.
const DIGITS: usize = 4;

/// One run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Which {
    /// The run's id, or the key it was started with.
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    by: By,
}

/// How runs are named.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct By {
    /// Take it as a key, even if it looks like an id.
    #[arg(long)]
    by_key: bool,
}

impl By {
    pub(crate) fn to(self, text: &str) -> To {
        let id = text.parse::<RunId>().ok().filter(|_| !self.by_key);
        id.map_or_else(|| To::Key(text.to_owned()), To::Run)
    }
}

impl Which {
    pub(crate) fn to(&self) -> To {
        self.by.to(&self.run)
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.run
    }

    /// The run; also by the beginning of its id, if there is one such run only.
    pub(crate) async fn find(&self, client: &Client) -> Result<RunView> {
        match client.run(self.to()).await {
            Err(roundel::Error::NoSuchRun(_)) => match bounds(&self.run) {
                Some(bounds) if !self.by.by_key => self.by_prefix(client, bounds).await,
                _ => Err(unknown(&self.run, client)),
            },
            other => Ok(other?),
        }
    }

    async fn by_prefix(&self, client: &Client, (first, last): (RunId, RunId)) -> Result<RunView> {
        let mut found = match client.run(last).await {
            Ok(run) => vec![run],
            Err(_) => Vec::new(),
        };
        found.extend(client.runs().after(last).limit(4).fetch().await?.items);
        found.retain(|run| run.row.id >= first);
        if found.len() < 2 {
            return found.pop().ok_or_else(|| unknown(&self.run, client));
        }
        let ids: Vec<String> = found.iter().map(|run| run.row.id.to_string()).collect();
        let text = &self.run;
        Err(Failed::new(
            Exit::NotFound,
            format!(
                "several runs begin with `{text}`: {}; give more of the id",
                ids.join(", ")
            ),
        ))
    }
}

/// There is no such run: what to do about it.
pub(crate) fn unknown(text: &str, client: &Client) -> Failed {
    let namespace = client.namespace();
    let kind = match text.parse::<RunId>() {
        Ok(_) => "id",
        Err(_) => "id or key",
    };
    Failed::new(
        Exit::NotFound,
        format!(
            "there is no run with the {kind} `{text}` in namespace `{namespace}`; it may have been \
             deleted, or be in another namespace; `runs list` shows those that are there"
        ),
    )
}

/// The first and the last id that begin like this, if it can be the beginning of one.
fn bounds(text: &str) -> Option<(RunId, RunId)> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !hex || !(DIGITS..32).contains(&digits.len()) {
        return None;
    }
    let filled = |with: char| {
        let rest: String = std::iter::repeat_n(with, 32 - digits.len()).collect();
        format!("{digits}{rest}").parse().ok()
    };
    Some((filled('0')?, filled('f')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_is_a_range_of_ids() {
        let (first, last) = bounds("0199-ab").expect("digits");
        assert_eq!(first.to_string(), "0199ab00-0000-0000-0000-000000000000");
        assert_eq!(last.to_string(), "0199abff-ffff-ffff-ffff-ffffffffffff");
        for text in ["019", "order-7", "0199zz", &"0".repeat(32)] {
            assert_eq!(bounds(text), None, "{text}");
        }
    }
}
