//! The table of what there is: each route, the parameters that it knows, and what answers it.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use serde::Serialize;

use super::answers::{counters, limits, policies, rankings, stores, usage};
use super::ask::Ask;
use super::problem::Problem;
use super::site::Site;

/// What clients read of it. A test holds it against the real answers.
pub(super) const OPENAPI: &str = include_str!("../../docs/admin.openapi.json");

/// The answer to a request.
pub(super) type Answer = Result<Response, Problem>;

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A route, and what answers it.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) parameters: &'static [&'static str],
    answer: fn(Arc<Site>, Ask) -> Answering,
}

macro_rules! routes {
    ($($method:ident $path:literal $parameters:tt $answer:path,)*) => {
        [$(Route {
            method: Method::$method,
            path: $path,
            parameters: &$parameters,
            answer: |site, ask| Box::pin($answer(site, ask)),
        },)*]
    };
}

/// All of them. Names and keys are parameters and no parts of paths, since they may hold `/`.
pub(super) fn routes() -> impl Iterator<Item = Route> {
    let routes = routes![
        GET "/policies" ["limit", "after"] policies::list,
        GET "/policy" ["policy"] policies::one,
        GET "/counters" ["key", "policy"] counters::look,
        DELETE "/counters" ["key", "under", "all", "policy"] counters::reset,
        GET "/busiest" ["policy", "limit"] rankings::busiest,
        GET "/refused" ["policy", "limit"] rankings::refused,
        GET "/limits" ["policy", "limit", "after"] limits::list,
        GET "/limit" ["policy", "key", "all"] limits::one,
        PUT "/limit" ["policy", "key", "all"] limits::set,
        DELETE "/limit" ["policy", "key", "all"] limits::remove,
        GET "/usage" ["from", "to", "key", "policy", "route"] usage::total,
        GET "/usage/days" ["from", "to", "key", "policy", "route", "limit", "after"] usage::by_day,
        GET "/usage/keys" ["from", "to", "key", "policy", "route", "limit"] usage::by_key,
        GET "/usage/policies" ["from", "to", "key", "policy", "route", "limit"] usage::by_policy,
        GET "/usage/routes" ["from", "to", "key", "policy", "route", "limit"] usage::by_route,
        GET "/stores" [] stores::list,
        GET "/openapi.json" [] openapi,
    ];
    routes.into_iter()
}

/// The routes on a site, open to everybody.
pub(super) fn router(site: Site) -> Router {
    let site = Arc::new(site);
    let mut paths: Vec<(&'static str, MethodRouter)> = Vec::new();
    for route in routes() {
        let path = route.path;
        let before = paths.iter().position(|(before, _)| *before == path);
        let place = before.unwrap_or_else(|| {
            paths.push((path, MethodRouter::new().fallback(method_not_allowed)));
            paths.len() - 1
        });
        let methods = std::mem::take(&mut paths[place].1);
        paths[place].1 = with(methods, &route, Arc::clone(&site));
    }
    let router = Router::new();
    let add = |router: Router, (path, methods): (&str, MethodRouter)| router.route(path, methods);
    paths.into_iter().fold(router, add)
}

fn with(methods: MethodRouter, route: &Route, site: Arc<Site>) -> MethodRouter {
    // The methods of the table are those of the standard.
    let filter = MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET);
    let (parameters, answer) = (route.parameters, route.answer);
    let has_body = route.method == Method::PUT;
    methods.on(filter, move |request: Request| async move {
        let mut ask = Ask::read(request.uri().query(), parameters)?;
        let body = request.into_body();
        if has_body {
            ask.read_body(body).await?;
        } else {
            Ask::read_no_body(body).await?;
        }
        answer(site, ask).await
    })
}

async fn method_not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "This path has no such method: the field Allow says which it has.",
    )
}

/// An answer in JSON.
pub(super) fn json(value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(of_json(bytes)),
        Err(_) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The answer could not be written as JSON: this is a fault in tollgate.",
        )),
    }
}

fn of_json(bytes: impl Into<Body>) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, json)], bytes.into()).into_response()
}

async fn openapi(_: Arc<Site>, _: Ask) -> Answer {
    Ok(of_json(OPENAPI))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    use super::*;

    type Operations = BTreeMap<(String, String), BTreeSet<String>>;

    #[test]
    fn the_openapi_file_has_each_route_with_its_parameters_and_no_other() {
        let file: Value = serde_json::from_str(OPENAPI).unwrap();
        let mut told = Operations::new();
        for (path, item) in file["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let parameters = operation["parameters"].as_array().cloned();
                let names = parameters.unwrap_or_default().into_iter().map(|parameter| {
                    let name = parameter["$ref"].as_str().map(|path| {
                        let path = path.strip_prefix('#').unwrap();
                        file.pointer(path).unwrap()["name"].clone()
                    });
                    let name = name.unwrap_or_else(|| parameter["name"].clone());
                    name.as_str().unwrap().to_owned()
                });
                told.insert((path.clone(), method.to_uppercase()), names.collect());
            }
        }
        let there = routes().map(|route| {
            let names = route.parameters.iter().map(|name| (*name).to_owned());
            let operation = (route.path.to_owned(), route.method.to_string());
            (operation, names.collect())
        });
        assert_eq!(told, there.collect::<Operations>());
    }
}
