//! In whose name an operator's command acts: it is audited, with the reason.

use clap::Args;
use roundel::Client;

use crate::exit::Result;

/// Who asks, and why.
#[derive(Args, Clone, Debug)]
pub(crate) struct Signed {
    /// Who does this, for the audit. `$ROUNDEL_OPERATOR` unless said, or else who is logged in.
    #[arg(long, value_name = "WHO")]
    operator: Option<String>,
    /// Why, for the audit.
    #[arg(long, value_name = "WHY")]
    reason: Option<String>,
}

impl Signed {
    /// The client, acting in that name.
    pub(crate) fn client(&self, client: &Client) -> Result<Client> {
        let logged_in = ["ROUNDEL_OPERATOR", "USER", "LOGNAME"].into_iter();
        let mut logged_in = logged_in.filter_map(|name| std::env::var(name).ok());
        let operator = self.operator.clone();
        let operator = operator.or_else(|| logged_in.find(|name| !name.trim().is_empty()));
        let operator = operator.unwrap_or_else(|| "unknown".to_owned());
        let client = client.operator(operator)?;
        Ok(client.reason(self.reason.clone().unwrap_or_default()))
    }
}
