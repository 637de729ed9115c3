//! What is opened and what is refused.

use std::io::ErrorKind;

use sqlx::postgres::PgPoolOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::sql_state::open_error;
use super::*;
use crate::store::engine::Backend;

async fn error_of(url: &str) -> PostgresOpenError {
    PostgresStore::connect(url).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_at_once_all_find_the_tables() {
    for _ in 0..5 {
        let schema = PostgresServer::new_schema();
        let start =
            async |schema: String| is_admitted(&open_in(&schema).await, &Policy::hourly(100)).await;
        let nodes: Vec<_> = (0..8)
            .map(|_| tokio::spawn(start(schema.clone())))
            .collect();
        for node in nodes {
            assert!(node.await.unwrap());
        }
    }
}

/// As after a crash that has emptied them: there is nothing to make, and all have to find the same number.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_find_empty_tables_at_once_agree_on_their_number() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::new_schema();
    open_in(&schema).await;
    for _ in 0..20 {
        query(
            server,
            &format!("DELETE FROM {schema}.rate_limit_generation"),
        )
        .await;
        let nodes: Vec<_> = (0..6)
            .map(|_| {
                let mut node = backend(&schema);
                tokio::spawn(async move {
                    node.open().await.unwrap();
                    node.database.generation().map(str::to_owned)
                })
            })
            .collect();
        let mut numbers = std::collections::HashSet::new();
        for node in nodes {
            numbers.insert(node.await.unwrap().unwrap());
        }
        assert_eq!(numbers.len(), 1);
    }
}

/// One that is not committed yet is waited for, and not overlooked.
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_a_node_that_is_under_way_is_waited_for() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::new_schema();
    open_in(&schema).await;
    query(
        server,
        &format!("DELETE FROM {schema}.rate_limit_generation"),
    )
    .await;
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    let mut held = other.begin().await.unwrap();
    let insert =
        format!("INSERT INTO {schema}.rate_limit_generation VALUES (1, gen_random_uuid())");
    let insert = sqlx::query(AssertSqlSafe(insert));
    insert.execute(&mut *held).await.unwrap();
    let mut node = backend(&schema);
    let opened = tokio::spawn(async move { node.open().await });
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE";
    let waits = format!("{waits} '%{schema}\".rate_limit_generation%' AND pid <> pg_backend_pid()");
    while number(server, &waits).await == 0 {
        tokio::task::yield_now().await;
    }
    held.commit().await.unwrap();
    opened.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_can_not_be_used_is_said_so_without_a_password() {
    let server = PostgresServer::shared();
    assert_eq!(error_of("http://x").await.name(), "invalid-postgres-url");
    let nobody = error_of("postgres://user:secret@127.0.0.1:1/db").await;
    assert_eq!(nobody.name(), "postgres-unreachable");
    assert!(!format!("{nobody:?}").contains("secret"), "{nobody:?}");
    let elsewhere = error_of(&format!("{}_not", server.url())).await;
    assert_eq!(elsewhere.name(), "postgres-refused", "{elsewhere:?}");
    let tls = error_of(&format!("{}?sslmode=require", server.url())).await;
    assert_eq!(tls.name(), "postgres-without-tls", "{tls:?}");
    let schema = PostgresStoreOptions::new().schema("a\"b");
    let schema = schema.connect(&server.url()).await.unwrap_err();
    assert_eq!(schema.name(), "invalid-schema");
    let none = error_of(&format!("{}?options=-c%20search_path%3Dnone", server.url())).await;
    assert_eq!(none.name(), "no-schema", "{none:?}");
    let only_reads = "default_transaction_read_only%3Don";
    let reads = error_of(&format!("{}?options=-c%20{only_reads}", server.url())).await;
    assert_eq!(reads.name(), "postgres-read-only", "{reads:?}");
}

/// What a pooler answers to whoever connects, after the code of the error.
async fn error_behind(code: &str, message: &str) -> PostgresOpenError {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let body = format!("SERROR\0VERROR\0C{code}\0M{message}\0\0");
    let length = u32::try_from(body.len() + 4).unwrap();
    let answer = [b"E", &length.to_be_bytes()[..], body.as_bytes()].concat();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut asked = [0; 1_024];
        assert!(client.read(&mut asked).await.unwrap() > 0);
        client.write_all(&answer).await.unwrap();
    });
    error_of(&format!(
        "postgres://app@127.0.0.1:{port}/app?sslmode=disable"
    ))
    .await
}

#[tokio::test]
async fn a_pooler_that_will_not_do_is_told_from_a_server_that_does_not_answer() {
    for (code, message) in [
        ("08P01", "unsupported startup parameter: extra_float_digits"),
        ("42P05", "prepared statement \"sqlx_s_1\" already exists"),
        ("26000", "prepared statement \"sqlx_s_1\" does not exist"),
    ] {
        let error = error_behind(code, message).await;
        assert_eq!(error.name(), "postgres-behind-pooler", "{error:?}");
        assert!(format!("{error:?}").contains(message), "{error:?}");
    }
    let error = error_behind("08P01", "server conn crashed?").await;
    assert_eq!(error.name(), "postgres-unreachable", "{error:?}");
}

#[test]
fn a_certificate_that_is_not_trusted_is_told_from_a_server_that_does_not_answer() {
    let location = Location::from_url("postgres://db.internal/app").unwrap();
    let untrusted = || std::io::Error::new(ErrorKind::InvalidData, "invalid peer certificate");
    for error in [
        sqlx::Error::Io(untrusted()),
        sqlx::Error::Tls("server does not support TLS".into()),
    ] {
        let error = open_error(&location, error);
        assert_eq!(error.name(), "postgres-tls-failed", "{error:?}");
    }
    let refused = sqlx::Error::Io(ErrorKind::ConnectionRefused.into());
    let error = open_error(&location, refused);
    assert_eq!(error.name(), "postgres-unreachable", "{error:?}");
}

#[tokio::test]
async fn a_user_without_rights_is_told_which() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::new_schema();
    query(server, &format!("CREATE ROLE nobody_{schema} LOGIN")).await;
    let url = server
        .url()
        .replace("postgres@", &format!("nobody_{schema}@"));
    let options = PostgresStoreOptions::new().schema(&schema);
    let error = options.clone().connect(&url).await.unwrap_err();
    assert_eq!(error.name(), "postgres-not-permitted", "{error:?}");
    // What the owner has made once, others may use.
    open_in(&schema).await;
    let error = options.clone().connect(&url).await.unwrap_err();
    assert_eq!(error.name(), "postgres-not-permitted", "{error:?}");
    query(
        server,
        &format!("GRANT USAGE ON SCHEMA {schema} TO nobody_{schema}"),
    )
    .await;
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA";
    query(server, &format!("{grant} {schema} TO nobody_{schema}")).await;
    let store = options.connect(&url).await.unwrap();
    let policy = Policy::sliding(3, 60);
    assert!(is_admitted(&store, &policy).await);
    let reset = crate::store::Reset {
        part: crate::store::suite::part_of(&policy, &alice()),
        with_keys_under: true,
        at: store.engine.told_time().await.unwrap(),
    };
    assert_eq!(store.engine.reset(reset).await.unwrap(), 1);
}

#[tokio::test]
async fn tables_of_a_later_version_are_used_as_long_as_that_allows() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::new_schema();
    open_in(&schema).await;
    query(
        server,
        &format!("UPDATE {schema}.rate_limit_schema SET version = 7"),
    )
    .await;
    assert!(is_admitted(&open_in(&schema).await, &Policy::hourly(3)).await);
    query(
        server,
        &format!("UPDATE {schema}.rate_limit_schema SET oldest_reader = 7"),
    )
    .await;
    let options = PostgresStoreOptions::new().schema(&schema);
    let error = options.connect(&server.url()).await.unwrap_err();
    assert_eq!(error.name(), "postgres-schema-too-new");
}

#[tokio::test]
async fn a_table_of_the_application_is_left_alone() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::new_schema();
    query(server, &format!("CREATE SCHEMA {schema}")).await;
    query(
        server,
        &format!("CREATE TABLE {schema}.rate_limit_events (mine int)"),
    )
    .await;
    let options = PostgresStoreOptions::new().schema(&schema);
    let error = options.connect(&server.url()).await.unwrap_err();
    assert_eq!(error.name(), "postgres-name-taken");
    assert!(error.to_string().contains("rate_limit_events"));
}

#[tokio::test]
async fn a_database_that_is_not_in_utf8_is_refused() {
    let server = PostgresServer::shared();
    query(
        server,
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0",
    )
    .await;
    let url = format!("postgres://postgres@127.0.0.1:{}/latin", server.port());
    let error = error_of(&url).await;
    assert_eq!(error.name(), "postgres-not-utf8", "{error:?}");
}

#[tokio::test]
async fn the_pool_of_the_application_is_never_waited_for() {
    let server = PostgresServer::shared();
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(&server.url()).await.unwrap();
    let held = pool.acquire().await.unwrap();
    let schema = PostgresServer::new_schema();
    let options = PostgresStoreOptions::new().schema(&schema);
    let store = options.from_pool(&pool).await.unwrap().deadline(PATIENCE);
    assert!(is_admitted(&store, &Policy::hourly(3)).await);
    drop(held);
    store.close().await.unwrap();
    assert!(pool.acquire().await.is_ok(), "the pool is left as it is");
    assert_eq!(store.health().name(), "postgres/postgres");
    assert!(!format!("{store:?}").contains("127.0.0.1"));
}
