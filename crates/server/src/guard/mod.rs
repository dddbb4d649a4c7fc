//! What every request passes before anybody looks at what it asks for: the name of the host, where
//! it came from, who sends it, how often; and what every answer carries.

mod headers;
mod host;
mod origin;
mod rate;

pub(crate) use headers::seal;
pub(crate) use host::Hosts;
pub(crate) use origin::same_site;
pub(crate) use rate::Rates;
