//! What was used by requests that were recorded.

#[cfg(feature = "sqlite")]
pub(in crate::admin) use self::recorded::{by_day, by_key, by_policy, by_route, total};
#[cfg(not(feature = "sqlite"))]
pub(in crate::admin) use self::unrecorded::{
    unrecorded as by_day, unrecorded as by_key, unrecorded as by_policy, unrecorded as by_route,
    unrecorded as total,
};

/// Without SQLite nothing is recorded.
#[cfg(not(feature = "sqlite"))]
mod unrecorded {
    use std::sync::Arc;

    use crate::admin::ask::Ask;
    use crate::admin::problem::Problem;
    use crate::admin::routes::Answer;
    use crate::admin::site::Site;

    pub(in crate::admin) async fn unrecorded(_: Arc<Site>, _: Ask) -> Answer {
        Err(Problem::no_audit())
    }
}

#[cfg(feature = "sqlite")]
mod recorded {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde::Serialize;

    use crate::admin::ask::Ask;
    use crate::admin::problem::Problem;
    use crate::admin::routes::{Answer, json};
    use crate::admin::site::Site;
    use crate::limit::{Day, DayError, Days};
    use crate::store::{Usage, UsageQuery};

    /// Today included.
    const DEFAULT_DAYS: i64 = 30;
    /// 0000-01-01: a year before it can't be written in four digits.
    const FIRST_DAY: i64 = -719_528;

    #[derive(Serialize)]
    struct Total {
        from: String,
        to: String,
        #[serde(flatten)]
        sum: Sum,
    }

    #[derive(Serialize)]
    struct Sums {
        from: String,
        to: String,
        usage: Vec<Labelled>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    }

    /// What was used on a day, by a key, …
    #[derive(Serialize)]
    struct Labelled {
        #[serde(flatten)]
        label: BTreeMap<&'static str, String>,
        #[serde(flatten)]
        sum: Sum,
    }

    #[derive(Serialize)]
    struct Sum {
        requests: u64,
        units: u64,
    }

    impl Sum {
        fn of(usage: Usage) -> Self {
            Self {
                requests: usage.requests(),
                units: usage.units(),
            }
        }
    }

    impl Labelled {
        fn of(name: &'static str, label: String, usage: Usage) -> Self {
            Self {
                label: BTreeMap::from([(name, label)]),
                sum: Sum::of(usage),
            }
        }
    }

    /// A question about days.
    struct Question {
        days: [Day; 2],
        query: UsageQuery,
    }

    impl Question {
        /// Without a beginning it is about 30 days, without an end they last until today.
        fn of(site: &Site, ask: &Ask) -> Result<Self, Problem> {
            let (store, now) = site.audit()?;
            let last = day(ask, "to")?.unwrap_or_else(|| Day::of(now));
            let first = day(ask, "from")?;
            let first = first.unwrap_or_else(|| {
                let first = last.unix_days() - (DEFAULT_DAYS - 1);
                Day::from_unix_days(first.max(FIRST_DAY))
            });
            let days = Days::new(first, last).map_err(invalid)?;
            let mut query = store.usage(days);
            if let Some(key) = ask.key("key")? {
                query = query.key(&key);
            }
            if let Some(policy) = ask.get("policy") {
                query = query.policy(policy);
            }
            if let Some(route) = ask.get("route") {
                query = query.route(route);
            }
            let days = [first, last];
            Ok(Self { days, query })
        }

        fn sums(&self, usage: Vec<Labelled>, next: Option<String>) -> Answer {
            let [from, to] = self.days.map(|day| day.to_string());
            json(&Sums {
                from,
                to,
                usage,
                next,
            })
        }

        /// Those that have used most, which come first.
        fn most(&self, name: &'static str, limit: usize, sums: Vec<(String, Usage)>) -> Answer {
            let sums = sums.into_iter().take(limit);
            let usage = sums.map(|(label, usage)| Labelled::of(name, label, usage));
            self.sums(usage.collect(), None)
        }
    }

    fn day(ask: &Ask, name: &str) -> Result<Option<Day>, Problem> {
        let day = ask.get(name).map(str::parse);
        day.transpose().map_err(invalid)
    }

    fn invalid(error: DayError) -> Problem {
        Problem::invalid(format!("The days: {error}."))
    }

    pub(in crate::admin) async fn total(site: Arc<Site>, ask: Ask) -> Answer {
        let question = Question::of(&site, &ask)?;
        let sum = Sum::of(question.query.total().await?);
        let [from, to] = question.days.map(|day| day.to_string());
        json(&Total { from, to, sum })
    }

    pub(in crate::admin) async fn by_day(site: Arc<Site>, ask: Ask) -> Answer {
        let (question, limit) = (Question::of(&site, &ask)?, ask.limit()?);
        let after = day(&ask, "after")?;
        let mut days = question.query.by_day().await?;
        days.retain(|(day, _)| after.is_none_or(|after| *day > after));
        let has_more = days.len() > limit;
        days.truncate(limit);
        let next = days.last().filter(|_| has_more);
        let next = next.map(|(day, _)| day.to_string());
        let usage = days.into_iter();
        let usage = usage.map(|(day, usage)| Labelled::of("day", day.to_string(), usage));
        question.sums(usage.collect(), next)
    }

    pub(in crate::admin) async fn by_key(site: Arc<Site>, ask: Ask) -> Answer {
        let (question, limit) = (Question::of(&site, &ask)?, ask.limit()?);
        let keys = question.query.by_key(limit).await?.into_iter();
        let keys = keys.map(|(key, usage)| (key.as_str().to_owned(), usage));
        question.most("key", limit, keys.collect())
    }

    pub(in crate::admin) async fn by_policy(site: Arc<Site>, ask: Ask) -> Answer {
        let (question, limit) = (Question::of(&site, &ask)?, ask.limit()?);
        question.most("policy", limit, question.query.by_policy().await?)
    }

    pub(in crate::admin) async fn by_route(site: Arc<Site>, ask: Ask) -> Answer {
        let (question, limit) = (Question::of(&site, &ask)?, ask.limit()?);
        question.most("route", limit, question.query.by_route().await?)
    }
}
