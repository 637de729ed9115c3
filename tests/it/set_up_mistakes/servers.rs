//! The names of what is wrong with the server of a store.

#[cfg(any(feature = "postgres", feature = "redis"))]
use std::sync::Arc;

#[cfg(any(feature = "postgres", feature = "redis"))]
use super::name_in;

/// The names of what is wrong with a Postgres. Without the feature they are only written here.
pub(super) fn postgres_names() -> [&'static str; 15] {
    #[cfg(feature = "postgres")]
    {
        use tollgate::PostgresOpenError;
        let source = || Arc::new(std::fmt::Error);
        let errors = [
            PostgresOpenError::InvalidUrl,
            PostgresOpenError::InvalidSchema("a b".to_owned()),
            PostgresOpenError::NoSchema,
            PostgresOpenError::Unreachable {
                server: "127.0.0.1:5432".to_owned(),
                source: source(),
            },
            PostgresOpenError::Refused { source: source() },
            PostgresOpenError::NoTls,
            PostgresOpenError::Tls { source: source() },
            PostgresOpenError::Pooler { source: source() },
            PostgresOpenError::NotPermitted { source: source() },
            PostgresOpenError::ReadOnly,
            PostgresOpenError::NotUtf8 {
                found: "LATIN1".to_owned(),
            },
            PostgresOpenError::ServerTooOld {
                found: "12.1".to_owned(),
            },
            PostgresOpenError::NameTaken("rate_limit_events".to_owned()),
            PostgresOpenError::SchemaTooNew {
                oldest_reader: 9,
                supported: 1,
            },
            PostgresOpenError::Failed(source()),
        ];
        errors.map(|error| {
            assert_eq!(name_in(&error.to_string()), error.name());
            error.name()
        })
    }
    #[cfg(not(feature = "postgres"))]
    [
        "invalid-postgres-url",
        "invalid-schema",
        "no-schema",
        "postgres-unreachable",
        "postgres-refused",
        "postgres-without-tls",
        "postgres-tls-failed",
        "postgres-behind-pooler",
        "postgres-not-permitted",
        "postgres-read-only",
        "postgres-not-utf8",
        "postgres-too-old",
        "postgres-name-taken",
        "postgres-schema-too-new",
        "postgres-not-opened",
    ]
}

/// The names of what is wrong with a Redis. Without the feature they are only written here.
pub(super) fn redis_names() -> [&'static str; 7] {
    #[cfg(feature = "redis")]
    {
        use tollgate::RedisOpenError;
        let source = || Arc::new(std::fmt::Error);
        let errors = [
            RedisOpenError::InvalidUrl("no scheme".to_owned()),
            RedisOpenError::NoTls,
            RedisOpenError::Tls(source()),
            RedisOpenError::InvalidPrefix,
            RedisOpenError::Unreachable(source()),
            RedisOpenError::NotAllowed(source()),
            RedisOpenError::Failed(source()),
        ];
        errors.map(|error| {
            assert_eq!(name_in(&error.to_string()), error.name());
            error.name()
        })
    }
    #[cfg(not(feature = "redis"))]
    [
        "invalid-redis-url",
        "redis-without-tls",
        "redis-tls-failed",
        "invalid-prefix",
        "redis-unreachable",
        "redis-not-allowed",
        "redis-not-opened",
    ]
}
