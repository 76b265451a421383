//! A web page that the developer visits can make the browser send requests to this machine, and changes nothing.

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use stand_in::{Clock, Options, StandIn, StandInServer};

const NOW: &str = "2026-03-02T09:00:00Z";

/// A stand-in with one schedule, and requests to it.
struct Visited {
    served: StandInServer,
    http: Client,
}

impl Visited {
    async fn start() -> Visited {
        let stand_in = StandIn::new(Options::default(), Clock::fixed(NOW.parse().unwrap()));
        let served = StandInServer::start_anywhere(stand_in).await.unwrap();
        let visited = Visited { served, http: Client::builder().no_proxy().build().unwrap() };
        let created = visited.request(Method::POST, "/schedules/kept").json(&schedule()).send().await.unwrap();
        assert_eq!(created.status(), 200, "{}", created.text().await.unwrap());
        visited
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.served.endpoint))
    }

    async fn get(&self, path: &str) -> Value {
        self.request(Method::GET, path).send().await.unwrap().json().await.unwrap()
    }
}

fn schedule() -> Value {
    json!({"ScheduleExpression": "cron(0 9 * * ? *)", "FlexibleTimeWindow": {"Mode": "OFF"},
           "Target": {"Arn": "arn:aws:lambda:us-east-1:123456789012:function:f",
                      "RoleArn": "arn:aws:iam::123456789012:role/r"}})
}

/// What a page can send without a preflight, and what it can send after its own name leads to this machine.
#[tokio::test]
async fn web_pages_change_nothing() {
    let visited = Visited::start().await;
    let no_faults = visited.get("/_faults").await;
    let faults = json!({"faults": [{"kind": "error_before", "chance": 1.0}]});
    let calls = [
        (Method::POST, "/_clock", json!({"advance_secs": 60})),
        (Method::POST, "/_faults", faults),
        (Method::POST, "/schedules/new", schedule()),
        (Method::PUT, "/schedules/kept", schedule()),
        (Method::DELETE, "/schedules/kept", Value::Null),
        (Method::GET, "/_fires", Value::Null),
        (Method::GET, "/schedules", Value::Null),
    ];
    for (method, path, body) in &calls {
        let request = |kind: &str| {
            let request = visited.request(method.clone(), path).header("content-type", kind);
            if body.is_null() { request } else { request.body(body.to_string()) }
        };
        for (name, value) in [("host", "a.example:8090"), ("origin", "http://a.example"), ("origin", "null")] {
            let answer = request("application/json").header(name, value).send().await.unwrap();
            assert_eq!(answer.status(), 403, "{method} {path} {name}: {value}");
            assert!(answer.headers().get("access-control-allow-origin").is_none());
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
            if !body.is_null() {
                assert_eq!(request(kind).send().await.unwrap().status(), 415, "{method} {path} {kind}");
            }
        }
    }
    assert_eq!(visited.get("/_clock").await, json!({"now": NOW}));
    assert_eq!(visited.get("/_faults").await, no_faults);
    let schedules = visited.get("/schedules").await;
    let names: Vec<_> = schedules["Schedules"].as_array().unwrap().iter().map(|one| &one["Name"]).collect();
    assert_eq!(names, ["kept"]);
    let own = visited.request(Method::GET, "/schedules").header("origin", &visited.served.endpoint);
    assert_eq!(own.send().await.unwrap().status(), 200);
}
