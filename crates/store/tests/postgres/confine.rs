//! A role that reads one namespace, and what it tries.

use roundel_core::Name;
use roundel_store::{
    Answer, Error, Postgres, PostgresOptions, Query, Statement, Store, Table, Value,
};
use roundel_testpg::Schema;

use crate::tools::{
    address, claimed, commit, dump, open, options, register, round, sql as outside, wait_for,
};

const TWO: &str = include_str!("confine.sql");
const SHOP: Name = Name::constant("shop");
/// Tables that are not of any namespace.
const LEFT_OUT: [&str; 3] = ["roundel_committer", "roundel_meta", "roundel_worker"];

/// A role that can log in and nothing else, which goes at the end. A role is the server's, not the
/// schema's: it has the schema's name.
struct Role<'s> {
    schema: &'s Schema,
    name: String,
}

impl Role<'_> {
    fn new<'s>(schema: &'s Schema, word: &str) -> Role<'s> {
        let name = [schema.name(), "_", word].concat();
        let role = Role { schema, name };
        role.say("CREATE ROLE READER LOGIN PASSWORD 'reading'");
        role
    }

    /// A statement of the owner's.
    fn say(&self, text: &str) {
        let text = text.replace("SPACE", self.schema.name());
        outside(self.schema, &text.replace("READER", &self.name));
    }

    /// The server's address as this role's.
    fn address(&self) -> String {
        let address = self.schema.address();
        let (scheme, rest) = address.split_once("://").expect("a URL");
        let host = rest.split_once('@').map_or(rest, |(_, host)| host);
        [scheme, "://", &self.name, ":reading@", host].concat()
    }

    fn confine(&self, namespace: &Name) -> Result<Vec<String>, Error> {
        let (address, schema) = (self.schema.address(), self.schema.name());
        wait_for(Postgres::confine(&address, schema, &self.name, namespace))
    }

    /// An engine's store whose statements come as this role.
    fn store(&self) -> Postgres {
        let options = PostgresOptions {
            reader: Some(self.address()),
            ..options(self.schema)
        };
        Postgres::open(&self.schema.address(), options).expect("a database")
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        self.say("DROP OWNED BY READER");
        self.say("DROP ROLE READER");
    }
}

fn sql(store: &Postgres, text: &str) -> Result<Table, Error> {
    let (text, limit) = (text.to_owned(), 100);
    match wait_for(store.read(Query::Sql(Statement { text, limit })))? {
        Answer::Table(table) => Ok(table),
        other => panic!("{other:?}"),
    }
}

fn number(store: &Postgres, text: &str) -> i64 {
    match sql(store, text).expect(text).rows[0][0] {
        Value::Integer(number) => number,
        ref other => panic!("{text}: {other:?}"),
    }
}

fn refused(store: &Postgres, text: &str) -> String {
    match sql(store, text) {
        Err(Error::Statement(why)) => why,
        other => panic!("{text}: {other:?}"),
    }
}

/// Tables and views of ours.
fn things(store: &Postgres, kind: &str) -> Vec<String> {
    let asked = "SELECT relname::text FROM pg_class WHERE relnamespace = \
         current_schema()::text::regnamespace AND relkind = 'KIND' ORDER BY 1";
    let found = sql(store, &asked.replace("KIND", kind)).expect("tables");
    let texts = found.rows.into_iter().map(|mut row| row.remove(0));
    let texts = texts.map(|value| match value {
        Value::Text(text) => text,
        other => panic!("{other:?}"),
    });
    texts.collect()
}

fn count(store: &Postgres, name: &str) -> i64 {
    number(store, &["SELECT count(*) FROM ", name].concat())
}

#[test]
fn n16_a_confined_role_reads_its_namespace_in_every_table_and_nothing_else() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let owner = open(&schema);
    outside(&schema, TWO);
    let role = Role::new(&schema, "reader");
    // What it was granted before does not count, nor do tables that are made later.
    role.say("GRANT ALL ON ALL TABLES IN SCHEMA SPACE TO READER");
    role.say("ALTER DEFAULT PRIVILEGES IN SCHEMA SPACE GRANT SELECT ON TABLES TO READER");
    let reads = role.confine(&SHOP).expect("it is confined");
    role.say("CREATE TABLE roundel_later (namespace text)");
    let reader = role.store();
    let views = things(&owner, "v");
    assert_eq!(views.len(), 3, "{views:?}");
    let tables = things(&owner, "r");
    assert!(tables.len() > 20, "{tables:?}");
    for table in tables.iter().chain(&views) {
        let closed = LEFT_OUT.contains(&table.as_str()) || table == "roundel_later";
        assert_eq!(reads.contains(table), !closed, "{table}");
        if closed {
            let why = refused(&reader, &["SELECT * FROM ", table].concat());
            assert!(why.contains("permission denied"), "{table}: {why}");
            continue;
        }
        let (mine, all) = (count(&reader, table), count(&owner, table));
        assert!(mine > 0 && mine * 2 == all, "{table}: {mine} of {all}");
        let other = [
            "SELECT count(*) FROM ",
            table,
            " AS t WHERE t::text LIKE '%bank%'",
        ];
        assert_eq!(number(&reader, &other.concat()), 0, "{table}");
    }
}

#[test]
fn n16_a_confined_role_does_not_get_out() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let owner = open(&schema);
    outside(&schema, TWO);
    let role = Role::new(&schema, "reader");
    role.confine(&SHOP).expect("it is confined");
    let reader = role.store();
    // What fails on the other namespace's rows would tell of them: it never comes to see them.
    let leaky = "SELECT count(*) FROM roundel_offer WHERE convert_from(payload, 'UTF8')::int > 0";
    assert_eq!(number(&reader, leaky), 1);
    let why = refused(&owner, leaky);
    assert!(why.contains("secret of the bank"), "{why}");
    let set = "SELECT count(*) FROM (SELECT set_config('roundel.namespace', 'bank', true)) AS set, \
         roundel_offer";
    assert_eq!(number(&reader, set), 1);
    let guessed = "SELECT count(*) FROM pg_stats WHERE schemaname = current_schema()";
    assert_eq!(number(&reader, guessed), 0);
    let off = "SELECT set_config('row_security', 'off', false) FROM roundel_offer";
    sql(&reader, off).expect("it may ask");
    for (text, part) in [
        (
            "SELECT set_config('role', 'postgres', false), query_to_xml('SELECT * FROM \
             roundel_worker', true, true, '')::text",
            "permission denied",
        ),
        (
            "SELECT set_config('row_security', 'off', false), query_to_xml('SELECT * FROM \
             roundel_offer', true, true, '')::text",
            "row-level security",
        ),
    ] {
        let why = refused(&reader, text);
        assert!(why.contains(part), "{text}: {why}");
    }
    // A namespace's name is a text in the policy, whatever it says.
    role.confine(&Name::constant("shop' OR true OR '\\"))
        .expect("it is confined");
    assert_eq!(count(&reader, "roundel_offer"), 0);
    // Confined anew, it reads the other one, and only that.
    role.confine(&Name::constant("bank"))
        .expect("it is confined");
    let value = "SELECT convert_from(payload, 'UTF8') FROM roundel_offer";
    let rows = sql(&reader, value).expect("an offer").rows;
    assert_eq!(rows, [[Value::Text("\"secret of the bank\"".into())]]);
}

#[test]
fn a_confinement_is_nobody_elses_matter() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let owner = open(&schema);
    outside(&schema, TWO);
    // One who works and does not own the tables, and one who reads all.
    let worker = Role::new(&schema, "worker");
    let all = Role::new(&schema, "all");
    for role in [&worker, &all] {
        role.say("GRANT USAGE ON SCHEMA SPACE TO READER");
        role.say("GRANT SELECT ON ALL TABLES IN SCHEMA SPACE TO READER");
    }
    worker.say("GRANT ALL ON ALL TABLES IN SCHEMA SPACE TO READER");
    let role = Role::new(&schema, "reader");
    let (by_worker, space) = (worker.address(), schema.name());
    let by_worker = wait_for(Postgres::confine(&by_worker, space, &role.name, &SHOP));
    let why = by_worker.expect_err("the tables are another's").to_string();
    assert!(
        why.contains("was not confined") && why.contains("owner"),
        "{why}"
    );
    role.confine(&SHOP).expect("it is confined");
    let other = Role::new(&schema, "other");
    other.confine(&Name::constant("bank")).expect("it is, too");
    assert_eq!(count(&all.store(), "roundel_run"), 2);
    for role in [&role, &other] {
        assert_eq!(count(&role.store(), "roundel_run"), 1);
    }
    let works = PostgresOptions {
        create: false,
        ..options(&schema)
    };
    let works = Postgres::open(&worker.address(), works).expect("a database");
    for store in [&works, &owner] {
        register(store);
    }
    let run = claimed(&works, 77);
    commit(&works, round(run, 1)).expect("a round");
    assert_eq!(count(&owner, "roundel_run"), 3);
}

#[test]
fn who_works_meanwhile_goes_on() {
    const ROUNDS: u64 = 60;
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let store = open(&schema);
    register(&store);
    let role = Role::new(&schema, "reader");
    let run = claimed(&store, 1);
    std::thread::scope(|scope| {
        let works = scope.spawn(|| {
            for epoch in 1..=ROUNDS {
                commit(&store, round(run, epoch)).expect("a round");
            }
        });
        let (mut done, mut gave_way) = (0, 0);
        while done == 0 || !works.is_finished() {
            match role.confine(&SHOP) {
                Ok(_) => done += 1,
                // Each waited for the other, and this one gave way.
                Err(Error::Unavailable(_)) if gave_way < 3 => gave_way += 1,
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(dump(&store).journal.len() as u64, ROUNDS + 1);
}

#[test]
fn a_role_that_has_other_ways_is_not_confined() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let owner = open(&schema);
    let role = Role::new(&schema, "reader");
    let group = Role::new(&schema, "group");
    let refused = |wanted: &str| match role.confine(&SHOP) {
        Err(Error::Unusable(why)) => assert!(why.contains(wanted), "{wanted}: {why}"),
        other => panic!("{wanted}: {other:?}"),
    };
    for (power, wanted, back) in [
        ("SUPERUSER", "is a superuser", "NOSUPERUSER"),
        ("BYPASSRLS", "bypasses row-level security", "NOBYPASSRLS"),
        ("CREATEROLE", "CREATEROLE", "NOCREATEROLE"),
        ("REPLICATION", "REPLICATION", "NOREPLICATION"),
    ] {
        role.say(&["ALTER ROLE READER ", power].concat());
        refused(wanted);
        role.say(&["ALTER ROLE READER ", back].concat());
    }
    role.say(&["GRANT ", &group.name, " TO READER"].concat());
    refused("is a member of");
    role.say(&["REVOKE ", &group.name, " FROM READER"].concat());
    role.say("CREATE TABLE roundel_own (run uuid)");
    role.say("ALTER TABLE roundel_own OWNER TO READER");
    refused("owns what it is to read");
    role.say("DROP TABLE roundel_own");
    role.say("GRANT SELECT (name) ON roundel_worker TO PUBLIC");
    refused("`roundel_worker`");
    role.say("REVOKE SELECT (name) ON roundel_worker FROM PUBLIC");
    role.say("GRANT DELETE ON roundel_offer TO PUBLIC");
    refused("`roundel_offer`");
    // Nothing was changed by any of these.
    let guarded = "SELECT count(*) FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid \
         WHERE relnamespace = current_schema()::text::regnamespace";
    assert_eq!(number(&owner, guarded), 0);
    role.say("REVOKE DELETE ON roundel_offer FROM PUBLIC");
    role.confine(&SHOP).expect("now it can be");
    let nobody = wait_for(Postgres::confine(
        &address(&schema),
        schema.name(),
        "nobody_at_all",
        &SHOP,
    ));
    let why = nobody.expect_err("there is no such role").to_string();
    assert!(why.contains("there is no role `nobody_at_all`"), "{why}");
}
