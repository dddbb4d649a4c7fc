//! What deciders that answer in JSON may write: facts and queues. A document they write themselves
//! is refused by name, there already or not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Name, Payload, Refusal};

/// A queue that a decider may write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueueKind {
    /// That of facts that come in.
    Incoming,
    /// The commands of this name.
    Commands(Name),
}

/// Which paths are queues and no documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Infrastructure(BTreeMap<Name, QueueKind>);

impl Default for Infrastructure {
    /// `incoming`, and `outgoing` for the commands of that name.
    fn default() -> Infrastructure {
        let outgoing = Name::constant("outgoing");
        let mut paths = BTreeMap::new();
        paths.insert(Name::constant("incoming"), QueueKind::Incoming);
        paths.insert(outgoing.clone(), QueueKind::Commands(outgoing));
        Infrastructure(paths)
    }
}

/// What a decider answers with, in JSON.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Facts to be recorded, in order.
    #[serde(default)]
    pub facts: Vec<Payload>,
    /// What it writes, by path.
    #[serde(default)]
    pub writes: BTreeMap<Name, Payload>,
    /// What its caller is told.
    #[serde(default = "Payload::null")]
    pub reply: Payload,
}

impl Infrastructure {
    /// No path is a queue.
    #[must_use]
    pub fn none() -> Infrastructure {
        Infrastructure(BTreeMap::new())
    }

    /// This path is that queue.
    #[must_use]
    pub fn with(mut self, path: Name, queue: QueueKind) -> Infrastructure {
        self.0.insert(path, queue);
        self
    }

    /// What is written into which queue.
    ///
    /// # Errors
    /// When a document is written, or a queue with what is no list.
    pub fn queued(
        &self,
        decider: &Name,
        writes: &BTreeMap<Name, Payload>,
    ) -> Result<Vec<(QueueKind, Vec<Payload>)>, Refusal> {
        let queues = writes.iter().map(|(path, written)| {
            let (decider, path) = (decider.clone(), path.clone());
            let Some(queue) = self.0.get(&path) else {
                let queues: Vec<&str> = self.0.keys().map(Name::as_str).collect();
                let queues = queues.join("`, `");
                return Err(Refusal::DocumentWritten {
                    decider,
                    path,
                    queues,
                });
            };
            match written.decode() {
                Ok(items) => Ok((queue.clone(), items)),
                Err(_) => Err(Refusal::NoList { decider, path }),
            }
        });
        queues.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(text: &str) -> BTreeMap<Name, Payload> {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn fa_04_a_document_that_is_written_is_refused_and_queues_are_not() {
        let pay = Name::constant("pay");
        let standard = Infrastructure::default();
        let found = standard.queued(&pay, &writes(r#"{"incoming":[1],"outgoing":[2,3]}"#));
        let found = found.expect("both are queues");
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].1.len(), found[1].1.len()), (1, 2));
        for text in [r#"{"balance/ada":[1]}"#, r#"{"incoming":[1],"new":{}}"#] {
            let refused = standard.queued(&pay, &writes(text));
            assert!(
                matches!(refused, Err(Refusal::DocumentWritten { .. })),
                "{text}"
            );
        }
        let refused = standard.queued(&pay, &writes(r#"{"incoming":{}}"#));
        assert!(matches!(refused, Err(Refusal::NoList { .. })));
    }

    #[test]
    fn fa_04_which_paths_are_infrastructure_is_configuration() {
        let pay = Name::constant("pay");
        let mail = QueueKind::Commands(Name::constant("mail"));
        let own = Infrastructure::none().with(Name::constant("outbox"), mail.clone());
        let found = own
            .queued(&pay, &writes(r#"{"outbox":[1]}"#))
            .expect("a queue");
        assert_eq!(found[0].0, mail);
        let refused = own.queued(&pay, &writes(r#"{"incoming":[1]}"#));
        let Err(refused @ Refusal::DocumentWritten { .. }) = refused else {
            panic!("it is refused: {refused:?}")
        };
        let text = refused.to_string();
        assert!(
            text.contains("`pay`") && text.contains("`incoming`"),
            "{text}"
        );
        assert!(text.contains("`outbox`"), "{text}");
    }
}
