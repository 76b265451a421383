# Each line is a command that a person could type. Before `make up` and `make test`, only Rust must be installed.
TARGET := $(or $(CARGO_TARGET_DIR),target)
VENV := $(TARGET)/venv

# The old name of the variable, for one version.
ifneq ($(TF_PLUGIN_DIR),)
ifeq ($(CRONBOX_TF_PLUGIN_DIR),)
$(warning TF_PLUGIN_DIR is now CRONBOX_TF_PLUGIN_DIR; the next version ignores the old name)
export CRONBOX_TF_PLUGIN_DIR := $(TF_PLUGIN_DIR)
endif
endif

# The databases of tests are thrown away, so they are in memory if there is room. Measurements stay on the disk.
ifeq ($(filter bench nightly,$(MAKECMDGOALS)),)
export CRONBOX_TEST_DATA := $(or $(CRONBOX_TEST_DATA),$(shell sh scripts/memory.sh))
endif

.PHONY: clients console prometheus registries tzdata nightly mutants setup up test model schemathesis security planted fuzz oidc pins torture ci lint sqlx sqlx-check bench lambdas image deploy rehearsal terraform openapi deny

setup: ## installs what is missing: Postgres 15 or later, pgbouncer, promtool, Python tools in a venv
	sh scripts/setup.sh "$(VENV)"

up: setup ## starts everything on this machine; Ctrl-C stops it (--bin, not -p: the build that `make test` makes)
	cargo build --bin cronbox-local --bin cronbox
	cargo run --bin cronbox-local -- up

test: setup ## runs all tests on a Postgres that it starts
	cargo build --workspace --bins
	cargo test --workspace --no-fail-fast

torture: setup ## N seeded histories of edits, faults, kills and clock steps; N=1 SEED=7 replays one and prints its trace
	cargo test --workspace --test torture -- --histories $(or $(N),500) --seed $(or $(SEED),1)$(if $(VARIANT), --variant $(VARIANT))

model: setup ## visits every state of the model of the protocols, and compares 1,000 walks through it with the real code
	cargo test --workspace --test states --test ablations --test conformance -- --show-output

lint: ## formats, clippy, documentation, unused dependencies, typing errors, words, planted errors, lock files, .github; no warning passes
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --test deploy --test clients --test schemathesis --test security --test oidc --test console --test states --test ablations --test conformance -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	sh scripts/machete.sh "$(TARGET)"
	sh scripts/text.sh "$(TARGET)"
	sh scripts/planted.sh "$(TARGET)" --check
	for fuzz in fuzz schedule/fuzz; do cargo metadata --locked --format-version 1 --manifest-path $$fuzz/Cargo.toml >/dev/null || exit 1; done
	python3 scripts/registries.py check

sqlx: setup ## regenerates .sqlx after a statement or a migration has changed
	sh scripts/sqlx.sh write

sqlx-check: setup ## fails if .sqlx differs from the statements and migrations
	sh scripts/sqlx.sh check

openapi: ## regenerates docs/openapi.json
	CRONBOX_UPDATE_OPENAPI=1 cargo test --workspace --test api openapi

# B8 starts the deployed binaries. B12 opens thousands of files. SIZE=full: tables as large as the goals name.
bench: setup $(if $(or $(findstring B8,$(ONLY)),$(if $(ONLY),,all)),lambdas) ## measures; prints a table and writes JSON to target/bench. ONLY=B5,B8 runs only these cases
	cargo build --release --workspace --bins
	ulimit -S -n $$(ulimit -H -n); cargo bench -p tests --bench suite -- $(if $(ONLY),--only $(ONLY)) $(if $(SIZE),--size $(SIZE))
ifeq ($(ONLY),)
	cargo bench -p schedule
	cargo test -p schedule --release --test scan -- --ignored
endif

tzdata: ## regenerates the bundled zone data from PyPI's newest tzdata
	python3 scripts/tzdata.py write schedule/data/zones.bin

registries: ## regenerates the table of special-purpose addresses; FROM=folder takes IANA's two CSV files from there first
	python3 scripts/registries.py write $(if $(FROM),--from "$(FROM)")

nightly: setup ## checks that take too long or depend on the day; all mutants within a week
	$(MAKE) mutants SHARD=$$(($$(date +%u) - 1))/7
	python3 scripts/tzdata.py check schedule/data/zones.bin
	cargo test --workspace --test torture -- --full --seed $$(date +%y%j0000)
	$(MAKE) security SIZE=full
	$(MAKE) bench ONLY=B13,B14,B17 SIZE=full

mutants: setup ## changes the code in small ways; each change must fail a test. Takes many hours: SHARD=0/7 does a seventh
	sh scripts/mutants.sh "$(TARGET)" "$(SHARD)"

lambdas: ## target/lambdas/x86_64/{publisher,runner,notifier}.zip, for Amazon Linux 2023. ARCH=arm64; RDS_CA=file.pem
	CRONBOX_RDS_CA="$(RDS_CA)" sh scripts/lambdas.sh "$(TARGET)" "$(or $(ARCH),x86_64)"

image: ## target/image/x86_64/cronbox.tar, an OCI image of app and CLI, on Debian. ARCH=arm64 on such a machine; RDS_CA=file.pem
	CRONBOX_RDS_CA="$(RDS_CA)" sh scripts/image.sh "$(TARGET)" "$(or $(ARCH),x86_64)" "$(or $(PROFILE),release)"

prometheus: setup ## checks deploy/prometheus with promtool, and compares the metrics of rules, dashboard and docs with real pages
	sh scripts/prometheus.sh
	cargo build --workspace --bins
	cargo test --workspace --test app -- metrics::
	cargo test --workspace --test publisher -- metrics::page
	cargo test --workspace --test house -- monitoring

deploy: ## checks deploy/: the compose file and the systemd units
	sh scripts/deploy.sh "$(TARGET)"

terraform: setup lambdas deploy ## checks terraform/, applies envs/dev to an emulator, uses it, destroys it, runs the runner's zip in another emulator, and the image
	sh scripts/terraform.sh "$(TARGET)"
	sh scripts/venv.sh "$(TARGET)/venv-ministack" scripts/ministack.txt
	$(MAKE) image PROFILE=dev
	cargo test --workspace --test deploy

# The commit before modules/service, the alias and the image.
BEFORE := 4785e223e093f797c441e7ac47d1bb73220b111a

rehearsal: setup lambdas ## applies to an emulator with permissions, kills the app for 250 s, redrives, verifies; upgrades an older deployment under load; applies all modules to another emulator. 50 minutes
	sh scripts/venv.sh "$(TARGET)/venv-ministack" scripts/ministack.txt
	$(MAKE) image PROFILE=dev
	sh scripts/upgrade.sh "$(TARGET)" $(BEFORE)
	cargo test --workspace --test deploy -- rehearsal upgrade whole --include-ignored --test-threads 1

schemathesis: setup ## sends every route what its description allows, and invalid requests, as every kind of caller
	sh scripts/venv.sh "$(TARGET)/venv-schemathesis" scripts/schemathesis.txt
	cargo test --workspace --test schemathesis -- --nocapture

# As root on Linux the attacks run in a network namespace of their own; elsewhere some are skipped, and it says which.
security: setup ## attacks the app and prints what got through; then schemathesis. SIZE=full: more tries, then `make planted` and `make fuzz`. ONLY=matrix,cursors
	sh scripts/browser.sh
	cargo build --workspace --bins
	sh scripts/security.sh "$(or $(SIZE),ci)" $(if $(ONLY),--only "$(ONLY)")
ifeq ($(ONLY),)
	$(MAKE) schemathesis
ifeq ($(SIZE),full)
	$(MAKE) planted
	sh scripts/fuzz.sh "$(TARGET)" 60 || [ $$? = 3 ]
endif
endif

# In a copy: the sources and the programs in TARGET stay as they are.
planted: setup ## plants one error after another in a copy of the sources; the attack that each patch names must report it. PATCH=no-team-check
	cargo build --workspace --bins
	cargo test --workspace --test security --no-run
	sh scripts/planted.sh "$(TARGET)" $(PATCH)

fuzz: ## lets libFuzzer look for texts that break a parser, 60 s each; needs a nightly compiler. SECONDS=600
	sh scripts/fuzz.sh "$(TARGET)" "$(or $(SECONDS),60)"

oidc: setup ## signs people in at Canaille and at npm's oidc-provider, real providers of OpenID Connect, and at a mock that misbehaves
	sh scripts/venv.sh "$(TARGET)/venv-oidc" scripts/oidc.txt
	sh scripts/oidc.sh "$(TARGET)"
	cargo build --workspace --bins
	cargo test --workspace --test oidc -- --nocapture

console: setup ## people use the console in a real Chromium, and sign in at Canaille; pictures of its pages are in TARGET/console then. ONLY=the_keyboard_suffices
	sh scripts/browser.sh
	sh scripts/venv.sh "$(TARGET)/venv-oidc" scripts/oidc.txt
	sh scripts/venv.sh "$(TARGET)/venv-console" scripts/console.txt
	ONLY="$(ONLY)" cargo test --workspace --test console -- --nocapture

clients: setup ## validates the description of the API, makes the packages of clients/ in TARGET/clients, and takes the README's tour with each
	sh scripts/clients.sh "$(TARGET)"
	cargo build --locked --manifest-path clients/rust/Cargo.toml --target-dir "$(TARGET)/clients/rust" --example tour
	cargo test --workspace --test clients -- --nocapture

pins: ## writes versions and digests of all Python tools (scripts/*.txt) from their lists (scripts/*.in)
	sh scripts/pins.sh "$(TARGET)"

# Tests wait for a third of their time. Meanwhile the linkers of the Lambdas and the emulators have the processors.
ci: setup lint deny sqlx-check
	python3 scripts/beside.py "$(TARGET)/terraform.log" "$(MAKE) terraform" "$(MAKE) test prometheus model security oidc console clients"

deny: ## checks licences, sources, banned crates and advisories (CRONBOX_ADVISORY_DB=DIR); does not change Cargo.lock
	sh scripts/deny.sh "$(TARGET)"
