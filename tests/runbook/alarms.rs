//! The alarms of terraform/modules/cron, as Terraform would deploy them with the defaults of its variables.

use std::collections::BTreeMap;
use std::path::Path;

use hcl::eval::{Context, Evaluate as _, FuncArgs, FuncDef, ParamType};
use hcl::{Body, Map, Value};
use serde::Deserialize;
use tests::publisher_process::PUBLISHER;

/// The queue of fires that EventBridge could not deliver to Lambda.
pub(crate) const SCHEDULES_QUEUE: &str = "cronbox-schedule-dlq";
/// The queue of fires that the runner could not deliver.
pub(crate) const RUNNER_QUEUE: &str = "cronbox-runner-dlq";

/// An alarm of CloudWatch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Alarm {
    pub(crate) namespace: String,
    pub(crate) metric: String,
    /// The dimensions.
    #[serde(rename = "where")]
    pub(crate) dimensions: BTreeMap<String, String>,
    pub(crate) statistic: String,
    #[serde(rename = "is", default = "at_least_the_threshold")]
    pub(crate) comparison: String,
    #[serde(rename = "value")]
    pub(crate) threshold: f64,
    /// The period, in minutes.
    #[serde(rename = "over")]
    pub(crate) period: usize,
    #[serde(rename = "of")]
    pub(crate) evaluation_periods: usize,
    #[serde(rename = "at_least")]
    datapoints_to_alarm: Option<usize>,
    #[serde(rename = "missing", default = "not_breaching")]
    pub(crate) missing_data: String,
}

fn at_least_the_threshold() -> String {
    "GreaterThanOrEqualToThreshold".to_owned()
}

fn not_breaching() -> String {
    "notBreaching".to_owned()
}

impl Alarm {
    /// How many periods must breach the threshold.
    pub(crate) fn datapoints_to_alarm(&self) -> usize {
        self.datapoints_to_alarm.unwrap_or(self.evaluation_periods)
    }
}

/// All alarms of the module, by name.
pub(crate) fn all_alarms() -> BTreeMap<String, Alarm> {
    let mut context = Context::new();
    context.declare_var("var", defaults(&parse("variables.tf")));
    for (name, value) in resources() {
        context.declare_var(name, value);
    }
    let merge = FuncDef::builder().variadic_param(ParamType::Any).build(merge);
    context.declare_func("merge", merge);
    let module = parse("alarms.tf");
    let locals = module.blocks().find(|block| block.identifier() == "locals").unwrap();
    let mut evaluated = Map::new();
    for local in locals.body().attributes() {
        context.declare_var("local", Value::Object(evaluated.clone()));
        let value = local.expr().evaluate(&context);
        evaluated.insert(local.key().to_owned(), value.unwrap_or_else(|error| panic!("{}: {error}", local.key())));
    }
    hcl::from_value(evaluated.swap_remove("alarms").unwrap()).unwrap()
}

fn parse(file: &str) -> Body {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../terraform/modules/cron").join(file);
    hcl::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The defaults of the variables that are plain values, and the environment.
fn defaults(variables: &Body) -> Map<String, Value> {
    let mut defaults = Map::new();
    for variable in variables.blocks().filter(|block| block.identifier() == "variable") {
        let default = variable.body().attributes().find(|attribute| attribute.key() == "default");
        let value = default.and_then(|default| default.expr().evaluate(&Context::new()).ok());
        defaults.insert(variable.labels()[0].as_str().to_owned(), value.unwrap_or(Value::Null));
    }
    defaults.insert("env".to_owned(), "dev".into());
    defaults
}

/// The resources that the alarms name, with the attributes that they read.
fn resources() -> [(&'static str, Value); 4] {
    let function = |name: &str| hcl::value!({ function_name = name });
    let filter = hcl::value!({ namespace = "cronbox/runner", name = "not_accepted" });
    [
        (
            "aws_lambda_function",
            hcl::value!({ publisher = (function(PUBLISHER)), runner = (function("cronbox-dev-runner")) }),
        ),
        ("aws_scheduler_schedule_group", hcl::value!({ this = { name = "cronbox" } })),
        (
            "aws_sqs_queue",
            hcl::value!({ dead_letters = { schedules = { name = SCHEDULES_QUEUE }, runner = { name = RUNNER_QUEUE } } }),
        ),
        (
            "aws_cloudwatch_log_metric_filter",
            hcl::value!({ runner_not_accepted = { metric_transformation = [(filter)] } }),
        ),
    ]
}

#[expect(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "the form of a function of hcl")]
fn merge(objects: FuncArgs) -> Result<Value, String> {
    let mut merged = Map::new();
    for object in objects.iter() {
        merged.extend(object.as_object().cloned().unwrap_or_default());
    }
    Ok(Value::Object(merged))
}

/// The resource fills in what an alarm leaves out; [`Alarm`] does the same.
#[test]
fn the_resource_has_the_defaults_of_these_tests() {
    let module = include_str!("../../terraform/modules/cron/alarms.tf");
    let module = module.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "comparison_operator = try(each.value.is, \"GreaterThanOrEqualToThreshold\")",
        "threshold = each.value.value",
        "period = each.value.over * 60",
        "evaluation_periods = each.value.of",
        "datapoints_to_alarm = try(each.value.at_least, each.value.of)",
        "treat_missing_data = try(each.value.missing, \"notBreaching\")",
    ] {
        assert!(module.contains(line), "{line}");
    }
}

#[test]
fn alarms_are_read_from_terraform() {
    let alarms = all_alarms();
    assert!(alarms.len() >= 38, "{:?}", alarms.keys());
    let lag = &alarms["outbox-lag"];
    assert_eq!((lag.metric.as_str(), lag.threshold, lag.period), ("OutboxLagSeconds", 300.0, 1));
    assert_eq!((lag.evaluation_periods, lag.datapoints_to_alarm(), lag.missing_data.as_str()), (5, 3, "breaching"));
    assert_eq!(lag.dimensions, BTreeMap::from([("Env".to_owned(), "dev".to_owned())]));
    let heartbeat = &alarms["publisher-heartbeat"];
    assert_eq!((heartbeat.comparison.as_str(), heartbeat.period), ("LessThanThreshold", 5));
    assert_eq!(alarms["runs-failed"].threshold, 10.0, "from a variable");
    assert_eq!(alarms["runner-dead-letters"].dimensions["QueueName"], RUNNER_QUEUE, "from a `for`");
}
