//! The settings of the login: they are flags and variables of each program that logs in.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use db::Pooler;

use crate::arn;

/// The database: a DSN, or the secret that contains it. No `Debug`, because a DSN contains a password.
#[derive(Args, Clone)]
pub struct Database {
    /// `postgres://user:password@host:port/database`
    #[arg(long, env = "CRONBOX_DB_DSN", hide_env_values = true, required_unless_present = "db_secret_arn", value_parser = NonEmptyStringValueParser::new())]
    pub db_dsn: Option<String>,
    /// ARN in Secrets Manager of a DSN, or of RDS's JSON (username, password; host, port, dbname if it has them).
    #[arg(long, env = "CRONBOX_DB_SECRET_ARN", value_parser = arn::parse_secret_arn)]
    pub db_secret_arn: Option<String>,
    /// The database's host, for a secret that names none: RDS keeps only username and password in the secret it rotates.
    #[arg(long, env = "CRONBOX_DB_HOST", value_parser = NonEmptyStringValueParser::new())]
    pub db_host: Option<String>,
    /// The database's port, for a secret that names none.
    #[arg(long, env = "CRONBOX_DB_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub db_port: Option<u16>,
    /// The database's name, for a secret that names none.
    #[arg(long, env = "CRONBOX_DB_NAME", value_parser = NonEmptyStringValueParser::new())]
    pub db_name: Option<String>,
    /// A PEM file of certificate authorities for the database's certificate, in addition to the public ones.
    #[arg(long, env = "CRONBOX_DB_CA_FILE", value_parser = db::ca_file)]
    pub db_ca_file: Option<PathBuf>,
    /// What the DSN leads to: Postgres itself (none), or a pooler that works by sessions or by transactions.
    #[arg(long, env = "CRONBOX_POOLER", default_value = "none", value_name = "none|session|transaction")]
    pub pooler: Pooler,
}
