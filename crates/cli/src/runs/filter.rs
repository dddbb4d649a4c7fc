//! Which runs: by workflow, state and label.

use clap::Args;
use roundel::{Client, Parked, RunState, Runs};

use crate::exit::Result;
use crate::start::label;

#[derive(Args, Clone, Debug)]
pub(crate) struct Filter {
    /// Only of this workflow.
    #[arg(long)]
    workflow: Option<String>,
    /// Only in this state, such as `waiting`; `runs list` counts rollbacks that failed, and that
    /// nobody accepted, among `parked`.
    #[arg(long, value_parser = state)]
    pub(super) state: Option<RunState>,
    /// Only with this label.
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Option<(String, String)>,
}

impl Filter {
    pub(super) fn runs(&self, client: &Client) -> Result<Runs> {
        let mut runs = client.runs();
        if let Some(workflow) = &self.workflow {
            runs = runs.of(workflow.clone())?;
        }
        if let Some(state) = self.state {
            runs = runs.in_state(state);
        }
        if let Some((name, value)) = &self.label {
            runs = runs.with_label(name.clone(), value.clone())?;
        }
        Ok(runs)
    }

    /// Those of them that wait for an operator.
    pub(super) fn parked(&self, client: &Client) -> Result<Parked> {
        let mut parked = client.parked();
        if let Some(workflow) = &self.workflow {
            parked = parked.of(workflow.clone())?;
        }
        if let Some((name, value)) = &self.label {
            parked = parked.with_label(name.clone(), value.clone())?;
        }
        Ok(parked)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.workflow.is_none() && self.state.is_none() && self.label.is_none()
    }
}

pub(crate) fn state(word: &str) -> std::result::Result<RunState, String> {
    RunState::parse(word).ok_or_else(|| {
        let words: Vec<&str> = RunState::ALL.iter().map(|state| state.as_str()).collect();
        format!("the states are {}", words.join(", "))
    })
}
