//! Answers to queries.

use std::collections::BTreeMap;

use roundel_core::{
    AuditId, AuditRow, KeyId, KeyKind, Lane, Name, PublicationId, Refusal, RunId, RunRow, RunState,
    Target, WorkerRow,
};

use super::state::{State, Tables};
use crate::cells::number;
use crate::query::sql::no_sql;
use crate::query::{Way, look};
use crate::{
    Answer, AuditFilter, AuditOrder, AuditView, DueFilter, Dump, Error, LOOK, MailView, Page,
    Permits, PublicationView, Query, QueueView, RunFilter, RunView, SignalFilter, SignalView,
    Stats, Stretch, TopicView, topic_of,
};

impl State {
    pub(crate) fn read(&self, query: Query) -> Result<Answer, Error> {
        let tables = &self.tables;
        Ok(match query {
            Query::Run(namespace, target) => {
                let found = tables.find(&namespace, &target);
                Answer::Run(found.map(|row| Box::new(tables.view(row))))
            }
            Query::Runs(filter) => Answer::Looked(tables.look(&filter)),
            Query::Due(filter) => Answer::Runs(tables.due_runs(&filter)),
            Query::Journal {
                run,
                execution,
                after,
                limit,
            } => {
                tables.known(run)?;
                let rows = tables.journal(run, execution).iter();
                let rows = rows.filter(|row| row.first + u64::from(row.count) > after + 1);
                Answer::Journal(page(rows.cloned(), limit))
            }
            Query::Mail(run, after, limit) => Answer::Mail(tables.mail(run, after, limit)?),
            Query::State(run) => {
                tables.known(run)?;
                Answer::State(tables.rows.states.get(&run).cloned())
            }
            Query::Children(run, after, limit) => {
                tables.known(run)?;
                let below = tables.index.children(run, after);
                let below = below.map(|child| tables.rows.run(child).expect("indexed"));
                Answer::Runs(page(below.map(|row| tables.view(row)), limit))
            }
            Query::Below(run) => {
                tables.known(run)?;
                Answer::Below(tables.below(run))
            }
            Query::Scope {
                run,
                execution,
                call,
                from,
            } => {
                tables.known(run)?;
                let runs = tables.index.scope((run, execution, call), from);
                let rows = runs.map(|run| tables.rows.run(run).expect("indexed"));
                Answer::Runs(page(rows.map(|row| tables.view(row)), 1_000))
            }
            Query::Publication(id) => Answer::Publications(tables.publication(id)),
            Query::Queues(namespace) => Answer::Queues(tables.queues(&namespace)),
            Query::Topics(namespace, rows) => Answer::Topics(tables.topics(&namespace, rows)),
            Query::Publications {
                namespace,
                topic,
                before,
                limit,
            } => Answer::Publications(tables.publications(&namespace, &topic, before, limit)),
            Query::Stats(namespace) => Answer::Stats(tables.stats(&namespace)),
            Query::Workers => Answer::Workers(tables.workers()),
            Query::Lanes => Answer::Lanes(tables.rows.lanes().to_vec()),
            Query::Records(after, limit) => Answer::Records(tables.records(after, limit)),
            Query::Offers(after, limit) => Answer::Offers(tables.offers(after.as_ref(), limit)),
            Query::Parked(filter) => Answer::Parked(tables.parked(&filter)),
            Query::Audit(filter) => Answer::Audit(tables.audit(&filter)),
            Query::Sql(_) | Query::Views => return Err(no_sql()),
            Query::Dump => Answer::Dump(Box::new(tables.dump())),
            of_facts => tables.of_facts(&of_facts),
        })
    }
}

pub(super) fn page<T>(mut items: impl Iterator<Item = T>, limit: usize) -> Page<T> {
    let found = items.by_ref().take(limit).collect();
    Page {
        items: found,
        more: items.next().is_some(),
    }
}

impl Tables {
    fn known(&self, run: RunId) -> Result<(), Error> {
        self.rows
            .run(run)
            .map(|_| ())
            .ok_or(Error::Refused(Refusal::UnknownRun { run }))
    }

    fn mail(&self, run: RunId, after: u64, limit: usize) -> Result<Vec<MailView>, Error> {
        self.known(run)?;
        let mail = self.rows.mail_of(run).filter(|(id, _)| id.number > after);
        let mut mail: Vec<_> = mail.map(|(id, row)| (id.clone(), row.clone())).collect();
        mail.sort_by_key(|(id, _)| id.number);
        mail.truncate(limit);
        Ok(mail)
    }

    fn parked(&self, filter: &SignalFilter) -> Stretch<SignalView, (RunId, u64)> {
        let parked = self
            .rows
            .mail
            .iter()
            .filter(|(_, row)| row.parked_at.is_some());
        let before = |run, number| filter.before.is_none_or(|last| (run, number) < last);
        let mut parked: Vec<_> = parked.filter(|(id, _)| before(id.run, id.number)).collect();
        parked.sort_by_key(|(id, _)| std::cmp::Reverse((id.run, id.number)));
        let rows = parked.into_iter().map(|(id, row)| {
            let run = self.rows.run(id.run).expect("a message has a run");
            let lane = self.rows.lane(run.lane);
            let of = filter.workflow.as_ref();
            let its = lane.namespace == filter.namespace
                && of.is_none_or(|workflow| lane.workflow == *workflow);
            let signal = its.then(|| SignalView {
                id: id.clone(),
                row: row.clone(),
                lane: lane.clone(),
                state: run.state,
            });
            ((id.run, id.number), signal)
        });
        look::stretch(rows, filter.limit.clamp(1, 1_000), filter.look)
    }

    fn publication(&self, id: PublicationId) -> Page<PublicationView> {
        let found = self.rows.publications.get(&id);
        page(found.map(|row| (id, row.clone())).into_iter(), 1)
    }

    fn topics(&self, namespace: &Name, rows: usize) -> Vec<TopicView> {
        let mut topics = BTreeMap::new();
        let all = || {
            let all = self.rows.publications.iter().map(|(_, row)| row);
            all.filter(|row| row.namespace == *namespace)
        };
        all().for_each(|row| {
            topic_of(&mut topics, &row.topic);
        });
        let each = look::share(rows, topics.len());
        // Backwards: those that were published last are counted first.
        let mut newest: Vec<_> = all().collect();
        newest.reverse();
        for row in newest {
            let topic = topic_of(&mut topics, &row.topic);
            topic.more = topic.publications == each as u64;
            if !topic.more {
                topic.publications += 1;
                topic.unheard += u64::from(row.heard == 0);
                topic.last_at = topic.last_at.max(Some(row.at));
            }
        }
        let all = self.rows.subscriptions.iter();
        for (id, row) in all.filter(|(id, _)| id.namespace == *namespace) {
            let topic = topic_of(&mut topics, &id.topic);
            topic.subscribers.push((id.workflow.clone(), row.since));
        }
        topics.into_values().collect()
    }

    fn publications(
        &self,
        namespace: &Name,
        topic: &Name,
        before: Option<PublicationId>,
        limit: usize,
    ) -> Page<PublicationView> {
        let all = self.rows.publications.iter().filter(|(id, row)| {
            let earlier = before.is_none_or(|before| **id < before);
            earlier && row.namespace == *namespace && row.topic == *topic
        });
        let mut found: Vec<_> = all.map(|(id, row)| (*id, row.clone())).collect();
        found.reverse();
        page(found.into_iter(), limit)
    }

    fn find(&self, namespace: &Name, target: &Target) -> Option<&RunRow> {
        let row = match target {
            Target::Run(run) => self.rows.run(*run)?,
            Target::Key(key) => {
                let (namespace, key) = (namespace.clone(), key.as_str().to_owned());
                let id = KeyId {
                    namespace,
                    kind: KeyKind::Run,
                    key,
                };
                self.rows.run(self.rows.keys.get(&id)?.run?)?
            }
        };
        self.is_in(row, namespace).then_some(row)
    }

    fn is_in(&self, row: &RunRow, namespace: &Name) -> bool {
        self.rows.lane(row.lane).namespace == *namespace
    }

    fn view(&self, row: &RunRow) -> RunView {
        let labels = self.rest.labels.range((row.id, Name::constant(" "))..);
        let labels = labels.take_while(|((run, _), _)| *run == row.id);
        RunView {
            row: row.clone(),
            lane: self.rows.lane(row.lane).clone(),
            labels: labels
                .map(|((_, name), value)| (name.clone(), value.clone()))
                .collect(),
        }
    }

    fn look(&self, filter: &RunFilter) -> Stretch<RunView, RunId> {
        let fits = |lane: &Lane| {
            let of = filter.workflow.as_ref();
            lane.namespace == filter.namespace && of.is_none_or(|name| lane.workflow == *name)
        };
        let with_label = |row: &RunRow| {
            filter.label.as_ref().is_none_or(|(name, value)| {
                self.rest.labels.get(&(row.id, name.clone())) == Some(value)
            })
        };
        let on_the_way = |row: &&RunRow| match filter.way() {
            Way::All => true,
            Way::Label => with_label(row),
            Way::Parked => row.state == RunState::Parked,
            Way::RollbackFailed => row.state == RunState::RollbackFailed,
        };
        let any = self.rows.lanes().iter().any(fits);
        let runs = self.index.runs_before(filter.before).filter(|_| any);
        let rows = runs.map(|run| self.rows.run(run).expect("indexed"));
        let rows = rows.filter(on_the_way).map(|row| {
            let its = fits(self.rows.lane(row.lane));
            let found = its && filter.state.is_none_or(|state| row.state == state);
            (row.id, found.then(|| self.view(row)))
        });
        look::stretch(rows, filter.limit.clamp(1, 1_000), filter.rows())
    }

    fn workers(&self) -> Vec<WorkerRow> {
        let workers = self.rows.workers.iter();
        workers.map(|(_, row)| row.clone()).collect()
    }

    fn due_runs(&self, filter: &DueFilter) -> Page<RunView> {
        let comes = |row: &RunRow, at| at <= filter.now || row.state == RunState::Ready;
        let due = |row: &&RunRow| {
            let lane = self.rows.lane(row.lane);
            let its = lane.workflow == filter.workflow && lane.namespace == filter.namespace;
            its && lane.version == 1 && row.ready_at.is_some_and(|at| comes(row, at))
        };
        let mut due: Vec<&RunRow> = self.rows.runs().filter(due).collect();
        let after = filter.after.map(|(at, run)| (Some(at), run));
        due.retain(|row| !row.suspect && row.priority == 0);
        due.retain(|row| after.is_none_or(|after| (row.ready_at, row.id) > after));
        due.sort_by_key(|row| (row.ready_at, row.id));
        page(due.into_iter().map(|row| self.view(row)), filter.limit)
    }

    fn below(&self, run: RunId) -> Vec<(RunState, u64)> {
        let below = self.index.children(run, None);
        let below = below.map(|child| self.rows.run(child).expect("indexed").state);
        let below: Vec<RunState> = below.collect();
        let count = |state: &RunState| below.iter().filter(|its| *its == state).count();
        let counts = RunState::ALL.map(|state| (state, count(&state) as u64));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    fn stats(&self, namespace: &Name) -> Stats {
        let runs = self.rows.runs().filter(|row| self.is_in(row, namespace));
        let alike = runs.map(|row| {
            let lane = self.rows.lane(row.lane);
            let (name, version) = (lane.workflow.clone(), lane.version);
            let owner = row.owner;
            (name, version, row.state, owner, 1, u64::from(row.mail))
        });
        let mut offers: BTreeMap<Name, u64> = BTreeMap::new();
        let free = self
            .rows
            .offers
            .iter()
            .filter(|(_, row)| row.taken_by.is_none());
        for (id, _) in free.filter(|(id, _)| id.gate.namespace == *namespace) {
            *offers.entry(id.gate.name.clone()).or_default() += 1;
        }
        Stats::of(alike, offers.into_iter().collect())
    }

    fn queues(&self, namespace: &Name) -> Vec<(QueueView, Permits)> {
        let all = self.rows.queues.iter();
        let its = all.filter(|(id, _)| id.namespace == *namespace);
        let view = |(id, row): (&roundel_core::QueueId, &roundel_core::QueueRow)| {
            ((id.clone(), row.clone()), self.permits(id))
        };
        its.map(view).collect()
    }

    fn audit(&self, filter: &AuditFilter) -> Stretch<AuditView, AuditId> {
        let begin = filter.begin();
        let beyond = |id: &AuditId| {
            let place = (id.namespace.as_str(), number(id.number));
            match (filter.order, &filter.after) {
                (_, None) => true,
                (AuditOrder::OldestFirst, _) => place > begin,
                (AuditOrder::NewestFirst, _) => place < begin,
            }
        };
        // A tenant's are looked through; what is asked of all, or of a run, has a way of its own.
        let on_the_way = |(id, row): &(&AuditId, &AuditRow)| {
            let its = filter.namespace.as_ref();
            its.is_none_or(|name| *name == id.namespace)
                && filter.run.is_none_or(|run| row.run == Some(run))
                && beyond(id)
        };
        let mut rows: Vec<_> = self.rows.audit.iter().filter(on_the_way).collect();
        if filter.order == AuditOrder::NewestFirst {
            rows.reverse();
        }
        let fits = |row: &AuditRow| {
            let by = filter.operator.as_ref();
            by.is_none_or(|by| *by == row.operator)
        };
        let limit = filter.limit.clamp(1, 1_000);
        if filter.through().is_none() {
            let found = rows.into_iter().filter(|(_, row)| fits(row));
            let found = page(found.map(|(id, row)| (id.clone(), row.clone())), limit);
            return Stretch::of(found, |(id, _)| id.clone());
        }
        let rows = rows.into_iter().map(|(id, row)| {
            let found = fits(row).then(|| (id.clone(), row.clone()));
            (id.number, found)
        });
        let look = filter.look.unwrap_or(LOOK);
        let namespace = filter.namespace.clone().expect("it is looked through");
        look::stretch(rows, limit, look).map(|number| AuditId {
            namespace: namespace.clone(),
            number,
        })
    }

    fn dump(&self) -> Dump {
        fn all<K: Clone + Ord, V: Clone>(table: &roundel_core::Table<K, V>) -> Vec<(K, V)> {
            table
                .iter()
                .map(|(key, row)| (key.clone(), row.clone()))
                .collect()
        }
        let labels = self.rest.labels.iter();
        let labels = labels.map(|((run, name), value)| (*run, name.clone(), value.clone()));
        Dump {
            lanes: self.rows.lanes().to_vec(),
            runs: self
                .index
                .runs()
                .map(|run| self.rows.run(run).expect("indexed").clone())
                .collect(),
            journal: self.rest.rounds(),
            labels: labels.collect(),
            mail: all(&self.rows.mail),
            waits: all(&self.rows.waits),
            gates: all(&self.rows.gates),
            offers: all(&self.rows.offers),
            keys: all(&self.rows.keys),
            watches: self.rows.watches.iter().map(|(watch, ())| *watch).collect(),
            states: all(&self.rows.states),
            subscriptions: all(&self.rows.subscriptions),
            publications: all(&self.rows.publications),
            latches: all(&self.rows.latches),
            queues: all(&self.rows.queues),
            audit: all(&self.rows.audit),
            facts: self
                .facts_in_order()
                .map(|(id, row)| (id.clone(), row.clone()))
                .collect(),
            projections: crate::query::without_positions(all(&self.rows.projections)),
            documents: all(&self.rows.documents),
            workers: self
                .rows
                .workers
                .iter()
                .map(|(_, row)| row.clone())
                .collect(),
        }
    }
}
