//! The statements, with the schema that they are about: each of them is one call of a function, or reads a small table.

use std::sync::{Arc, LazyLock};

use sqlx::AssertSqlSafe;

/// What makes the tables and the functions, in this order.
const SCRIPTS: [&str; 10] = [
    include_str!("sql/tables.sql"),
    include_str!("sql/time.sql"),
    include_str!("sql/twin.sql"),
    include_str!("sql/changes.sql"),
    include_str!("sql/windows.sql"),
    include_str!("sql/read.sql"),
    include_str!("sql/charge.sql"),
    include_str!("sql/give_back.sql"),
    include_str!("sql/reset.sql"),
    include_str!("sql/sweep.sql"),
];

/// What stands for a longer expression in the function that charges windows. An expression may have those behind it in it.
const EXPRESSIONS: [(&str, &str); 4] = [
    (
        "{extra}",
        "least(excluded.ahead, ({left} - excluded.last_cost * {admitted}) / 8)",
    ),
    ("{admitted}", "least({length}, {left} / excluded.last_cost)"),
    (
        "{length}",
        "((excluded.used - excluded.ahead + excluded.denied) / excluded.last_cost)",
    ),
    ("{left}", "greatest(0, excluded.last_limit - w.used)"),
];

static TEMPLATE: LazyLock<String> = LazyLock::new(|| {
    let mut scripts = SCRIPTS.concat();
    for (name, expression) in EXPRESSIONS {
        scripts = scripts.replace(name, expression);
    }
    scripts
});

/// A statement that was made of constants and the quoted name of a schema.
#[derive(Clone, Debug)]
pub(super) struct Statement(Arc<str>);

impl Statement {
    pub(super) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }
}

/// The statements on the tables of one schema.
#[derive(Debug)]
pub(super) struct Statements {
    schema: String,
    pub(super) versions: Statement,
    pub(super) taken: Statement,
    pub(super) generation: Statement,
    pub(super) charge_windows: Statement,
    pub(super) charge: Statement,
    pub(super) read: Statement,
    pub(super) find: Statement,
    pub(super) give_back: Statement,
    pub(super) count_refused: Statement,
    pub(super) reset: Statement,
    pub(super) sweep: Statement,
    pub(super) set_limit: Statement,
    pub(super) find_limit: Statement,
    pub(super) list_limits: Statement,
    pub(super) changes: Statement,
}

impl Statements {
    pub(super) fn of(schema: &str) -> Self {
        let filled = |statement: &str| Statement(filled(statement, schema).into());
        let call = |function: &str, parameters: usize| {
            let numbers: Vec<_> = (1..=parameters).map(|n| format!("${n}")).collect();
            let numbers = numbers.join(", ");
            filled(&format!("SELECT * FROM {{s}}.{function}({numbers})"))
        };
        Self {
            versions: filled("SELECT version, oldest_reader FROM {s}.rate_limit_schema"),
            taken: filled(TAKEN),
            generation: filled(GENERATION),
            charge_windows: call("rate_limit_charge_windows_1", 11),
            charge: call("rate_limit_charge_1", 19),
            read: filled(READ),
            find: call("rate_limit_find_1", 5),
            give_back: call("rate_limit_give_back_1", 11),
            count_refused: call("rate_limit_count_refused_1", 5),
            reset: call("rate_limit_reset_1", 11),
            sweep: call("rate_limit_sweep_1", 10),
            set_limit: call("rate_limit_set_limit_1", 6),
            find_limit: filled(FIND_LIMIT),
            list_limits: filled(LIST_LIMITS),
            changes: filled(CHANGES),
            schema: schema.to_owned(),
        }
    }

    /// Makes what is missing, in one transaction, while nobody else does. `version` and `oldest_reader` are what it is then.
    pub(super) fn migration(
        &self,
        is_unlogged: bool,
        version: i64,
        oldest_reader: i64,
    ) -> Statement {
        let unlogged = if is_unlogged { "UNLOGGED" } else { "" };
        let scripts = TEMPLATE.replace("{unlogged}", unlogged);
        let migration = format!(
            "{scripts}
            INSERT INTO {{s}}.rate_limit_schema AS s (id, version, oldest_reader)
            VALUES (1, {version}, {oldest_reader})
            ON CONFLICT (id) DO UPDATE SET version = greatest(s.version, excluded.version);"
        );
        Statement(filled(&migration, &self.schema).into())
    }

    /// Makes the schema itself, where it is missing.
    pub(super) fn create_schema(&self) -> Statement {
        Statement(filled("CREATE SCHEMA IF NOT EXISTS {s}", &self.schema).into())
    }
}

/// A schema's name needs no more care than quotes: `is_valid_schema`.
fn filled(statement: &str, schema: &str) -> String {
    statement
        .replace("{name}", &format!("'{schema}'"))
        .replace("{s}", &format!("\"{schema}\""))
}

/// Whether a schema may have this name: 1 to 63 bytes of letters, digits, `_` and `-`.
pub(super) fn is_valid_schema(name: &str) -> bool {
    let is_allowed = |character: char| character.is_alphanumeric() || "_-".contains(character);
    (1..=63).contains(&name.len()) && name.chars().all(is_allowed)
}

/// What has a name that is needed, in a schema that has no tables of ours.
const TAKEN: &str = "
SELECT c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname IN (
    'rate_limit_generation', 'rate_limit_windows', 'rate_limit_events', 'rate_limit_buckets', 'rate_limit_locks',
    'rate_limit_limits', 'rate_limit_changes', 'rate_limit_usage', 'rate_limit_event_log', 'rate_limit_bucket_usage',
    'rate_limit_refusals', 'rate_limit_set_limits')
LIMIT 1
";

/// The number of these counters, and the server's time. It is made when it is not there; that of another node, which may not be
/// committed yet, is waited for.
const GENERATION: &str = "
WITH known AS (
    SELECT generation FROM {s}.rate_limit_generation
),
new AS (
    INSERT INTO {s}.rate_limit_generation AS g (id, generation)
    SELECT 1, gen_random_uuid() WHERE NOT EXISTS (SELECT FROM known)
    ON CONFLICT (id) DO UPDATE SET generation = g.generation
    RETURNING generation
)
SELECT generation::text, {s}.rate_limit_now_1(NULL, $1) FROM (
    SELECT generation FROM known UNION ALL SELECT generation FROM new
) AS either
";

/// Looks. `$1` and `$2` are the clock, the others are slots.
const READ: &str = "
SELECT slot, now.at AS decided_at, state AS found, NULL::bigint[] AS remains, own, every
FROM (SELECT {s}.rate_limit_now_1($1, $2) AS at OFFSET 0) AS now
CROSS JOIN LATERAL {s}.rate_limit_read_1(now.at, $3, $4, $5, $6, $7)
";

const FIND_LIMIT: &str = "
SELECT key, units, ends_at FROM {s}.rate_limit_limits
WHERE policy = $1 AND key = $2 AND coalesce(ends_at, 9223372036854775807) > $3
";

const LIST_LIMITS: &str = "
SELECT key, units, ends_at FROM {s}.rate_limit_limits
WHERE policy = $1 AND key > $2 AND coalesce(ends_at, 9223372036854775807) > $3
ORDER BY key LIMIT $4
";

/// What became free after `$1`, the first `$2` of it; in front of it the first and the last number of all, and the server's time.
const CHANGES: &str = "
SELECT NULL::smallint AS kind, NULL::text AS policy, NULL::text AS first_key, NULL::text AS last_key,
    coalesce(min(seq), 1) AS first, coalesce(max(seq), 0) AS last, {s}.rate_limit_now_1(NULL, $3) AS now
FROM {s}.rate_limit_changes
UNION ALL
SELECT * FROM (
    SELECT kind, policy, first_key, last_key, seq, seq, NULL::bigint FROM {s}.rate_limit_changes
    WHERE seq > $1 ORDER BY seq LIMIT $2
) AS new
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_schema_stands_wherever_it_is_needed() {
        assert_eq!(filled("{name} {s}.t", "Mine"), r#"'Mine' "Mine".t"#);
        let migration = Statements::of("s").migration(true, 1, 1);
        assert!(!migration.0.contains('{'));
    }

    #[test]
    fn a_schema_can_not_end_a_statement() {
        for name in ["public", "Limits_2", "größe", "a-b"] {
            assert!(is_valid_schema(name), "{name}");
        }
        let long = "a".repeat(64);
        for name in ["", "a\"b", "a'b", "a$$b", "a%b", "a\\b", "a b", &long] {
            assert!(!is_valid_schema(name), "{name}");
        }
    }
}
