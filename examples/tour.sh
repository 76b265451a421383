#!/bin/sh
# A tour of the API with curl. Start `make up`, and in a second shell:
#
#     . target/local/env
#     sh examples/tour.sh
set -eu
: "${CRONBOX_URL:?run: . target/local/env}" "${CRONBOX_KEY:?run: . target/local/env}" "${CRONBOX_TEAM_ID:?run: . target/local/env}"

# call METHOD PATH [BODY [CONTENT_TYPE]]: prints the answer. It fails if the status is 400 or more.
call() {
    curl --silent --show-error --fail-with-body --request "$1" "$CRONBOX_URL/api/v1$2" \
        --header "X-API-Key: $CRONBOX_KEY" --header "Content-Type: ${4:-application/json}" ${3:+--data "$3"}
}

# field NAME ANSWER: a text or a number of an answer.
field() {
    printf '%s\n' "$2" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"
}

step() {
    printf '\n# %s\n' "$1"
}

step "What does this cron mean? It is compiled to one expression of EventBridge Scheduler."
call POST /cron:explain '{"cron": "0 9 * * MON-FRI", "timezone": "Europe/Paris", "count": 3}'

step "Create a workflow, and wait until EventBridge has its schedule."
workflow=$(call POST '/workflows?wait=25' '{
    "team_id": '"$CRONBOX_TEAM_ID"', "name": "tour '"$$"'", "cron_schedule": "0 9 * * MON-FRI", "timezone": "Europe/Paris",
    "starting_inputs": {"report": "daily"}, "action": {"type": "log", "message": "the tour runs"}
}')
printf '%s\n' "$workflow"
id=$(field id "$workflow")

step "When is it due next? A note says where the clocks change."
call GET "/schedules/$id/next?n=3"

step "Run it now, beside its schedule."
fired=$(call POST "/schedules/$id:fire" '{"inputs": {"report": "today"}}')
printf '%s\n' "$fired"
run=$(field run_id "$fired")

step "Wait until the run has ended."
tries=0
while :; do
    answer=$(call GET "/runs/$run")
    case $(field state "$answer") in
    accepted | queued | running) ;;
    *) break ;;
    esac
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || {
        echo "the run has not ended within a minute: $answer" >&2
        exit 1
    }
    sleep 1
done
printf '%s\n' "$answer"
[ "$(field state "$answer")" = succeeded ]

step "A wrong edit is refused: the answer names the field."
if call PATCH "/workflows/$id" '{"cron_schedule": "75 9 * * *"}'; then
    echo "the edit was not refused" >&2
    exit 1
fi

step "A merge patch removes the cron: the workflow stays, its schedule in EventBridge goes."
call PATCH "/workflows/$id?wait=25" '{"cron_schedule": null}' application/merge-patch+json

step "Archive it. Its runs can be read for 90 days."
call POST "/workflows/$id:archive?wait=25"

printf '\n\nThe tour is over: workflow %s, run %s\n' "$id" "$run"
