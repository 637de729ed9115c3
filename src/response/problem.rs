//! The body of our own answers: problem details (RFC 9457).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderValue;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::fields::wait_seconds;
use crate::limit::{Algorithm, Decision, Policy};

/// JSON has no charset parameter.
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The draft's type for a quota that is used up. It is in IANA's space, and not known to be registered yet.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The same at every occurrence of the type (RFC 9457, 3.1.3).
const QUOTA_EXCEEDED_TITLE: &str = "Quota Exceeded";
/// No meaning beyond the status (RFC 9457, 4.2.1).
const ABOUT_BLANK: &str = "about:blank";

/// What the problem document of a refused request says of itself.
///
/// | member | default |
/// | --- | --- |
/// | `type` | `https://iana.org/assignments/http-problem-types#quota-exceeded`, as the RateLimit draft has it |
/// | `title` | `Quota Exceeded` |
/// | `detail` | which policy was exceeded, never whose key |
///
/// # Examples
///
/// ```
/// use tollgate::{Problem, RateLimitLayer};
///
/// let layer = RateLimitLayer::fixed(3, 60).problem(
///     Problem::new("/problems/rate-limit-exceeded", "Too Many Requests")
///         .detail(|denied| format!("At most {} requests a minute.", denied.policy().limit())),
/// );
/// ```
#[derive(Clone)]
pub struct Problem {
    type_uri: Cow<'static, str>,
    title: Cow<'static, str>,
    detail: Option<Detail>,
}

type Detail = Arc<dyn Fn(&Decision) -> String + Send + Sync>;

impl Problem {
    /// A problem type of your own, and its title.
    ///
    /// The type is a URI, best an absolute one, or at least a full path: a relative one means something else on each
    /// path (RFC 9457, 3.1.1). The title is the same at every occurrence. With the type `about:blank` it should be
    /// `Too Many Requests`.
    #[must_use]
    pub fn new(
        type_uri: impl Into<Cow<'static, str>>,
        title: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            type_uri: type_uri.into(),
            title: title.into(),
            detail: None,
        }
    }

    /// Sets what is said of this occurrence. The decision's [key](Decision::key) may be somebody's personal data: show it
    /// to nobody else.
    #[must_use]
    pub fn detail(mut self, detail: impl Fn(&Decision) -> String + Send + Sync + 'static) -> Self {
        self.detail = Some(Arc::new(detail));
        self
    }

    fn detail_of(&self, denied: &Decision) -> String {
        match &self.detail {
            Some(detail) => detail(denied),
            None => default_detail(denied),
        }
    }
}

impl Default for Problem {
    fn default() -> Self {
        Self::new(QUOTA_EXCEEDED, QUOTA_EXCEEDED_TITLE)
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problem")
            .field("type", &self.type_uri)
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

/// A problem document.
#[derive(Debug, Default)]
pub(crate) struct Document<'a> {
    type_uri: Cow<'a, str>,
    title: Cow<'a, str>,
    status: StatusCode,
    detail: Cow<'a, str>,
    limit: Option<u32>,
    window_seconds: Option<u64>,
    retry_after: Option<u64>,
    violated_policies: Vec<&'a str>,
}

impl<'a> Document<'a> {
    /// The document of a refused request.
    pub(crate) fn denied(problem: &'a Problem, denied: &'a Decision) -> Self {
        Self {
            type_uri: Cow::Borrowed(&problem.type_uri),
            title: Cow::Borrowed(&problem.title),
            status: StatusCode::TOO_MANY_REQUESTS,
            detail: Cow::Owned(problem.detail_of(denied)),
            limit: Some(denied.policy().limit()),
            window_seconds: Some(denied.policy().window_seconds()),
            retry_after: denied.retry_after().map(wait_seconds),
            violated_policies: denied.violated().map(Policy::as_name).collect(),
        }
    }

    /// The document of an answer whose meaning is its status.
    pub(crate) fn of_status(
        status: StatusCode,
        detail: impl Into<Cow<'a, str>>,
        retry_after: Option<u64>,
    ) -> Self {
        Self {
            type_uri: Cow::Borrowed(ABOUT_BLANK),
            title: Cow::Borrowed(status.canonical_reason().unwrap_or_default()),
            status,
            detail: detail.into(),
            retry_after,
            ..Self::default()
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        // Strings and numbers under constant names: there is nothing in it that could fail.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("type", &self.type_uri)?;
        members.serialize_entry("title", &self.title)?;
        members.serialize_entry("status", &self.status.as_u16())?;
        members.serialize_entry("detail", &self.detail)?;
        if let Some(limit) = self.limit {
            members.serialize_entry("limit", &limit)?;
        }
        if let Some(window_seconds) = self.window_seconds {
            members.serialize_entry("window_seconds", &window_seconds)?;
        }
        if let Some(retry_after) = self.retry_after {
            members.serialize_entry("retry_after", &retry_after)?;
        }
        if !self.violated_policies.is_empty() {
            members.serialize_entry("violated-policies", &self.violated_policies)?;
        }
        members.end()
    }
}

fn default_detail(denied: &Decision) -> String {
    let policy = denied.policy();
    let allowance = allowance(policy);
    if denied.cost() > policy.limit().max(1) {
        let cost = denied.cost();
        return format!("{allowance} A cost of {cost} can never pass.");
    }
    if let (Some(_), Some(blocking)) = (denied.leading().blocked_for(), policy.blocking()) {
        let lasts = lasting(blocking.lasts);
        return format!("{allowance} Who exceeds it is blocked for {lasts}.");
    }
    allowance
}

fn allowance(policy: &Policy) -> String {
    let name = policy.as_name();
    let allowed = units(policy.rate());
    match policy.algorithm() {
        Algorithm::CalendarHour => format!("The policy {name} allows {allowed} per hour."),
        Algorithm::CalendarDay => format!("The policy {name} allows {allowed} per day."),
        Algorithm::CalendarMonth => format!("The policy {name} allows {allowed} per month."),
        _ => {
            let per = length(policy.period());
            let burst = policy.limit();
            if policy.rate() == burst {
                format!("The policy {name} allows {allowed} per {per}.")
            } else {
                format!("The policy {name} allows {allowed} per {per}, and {burst} at once.")
            }
        }
    }
}

fn units(limit: u32) -> String {
    match limit {
        0 => "no requests".to_owned(),
        1 => "1 request".to_owned(),
        limit => format!("{limit} requests"),
    }
}

/// How long something lasts, as `length` has it but for a single second.
fn lasting(duration: Duration) -> String {
    if duration == Duration::from_secs(1) {
        return "1 second".to_owned();
    }
    length(duration)
}

fn length(period: Duration) -> String {
    match (period.as_secs(), period.subsec_millis()) {
        (1, 0) => "second".to_owned(),
        (seconds, 0) => format!("{seconds} seconds"),
        _ => format!("{} milliseconds", period.as_millis()),
    }
}
