#!/bin/bash
# The test worker of the shell client.  test/clients/README.md has the
# command line and the handlers.
here=$(cd "$(dirname "$0")" && pwd)
client=$here/../../clients/shell/jobq-worker
if [ "${1:-}" = enqueue ]; then exec "$client" -d "$JOBQ_DSN" "$@"; fi
if [ "${1:-}" = handle ]; then
  log() { printf '{"event": "%s", "ts": "%(%FT%T)T", "level": "info", "job_id": "%s", "%s": "%s"}\n' "$1" -1 "$JOBQ_ID" "$2" "$3" >&2; }
  field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p"; }
  # Waits for the job's gate; SIGTERM does not end the wait.
  pass_gate() {
    local gate
    gate=$(field gate)${1:-}
    trap '' TERM
    until [ -e "$JOBQ_DIR/$gate" ] || ! kill -0 "$JOBQ_WORKER_PID"; do sleep 0.02; done
  }
  case $2 in
    echo) cat ;;
    slow)
      gate=$(field gate)
      trap 'log handler_stopped reason "$(<"$JOBQ_STOP")"; exit 1' TERM
      until [ -e "$JOBQ_DIR/$gate" ]; do
        kill -0 "$JOBQ_WORKER_PID" || exit 1
        sleep 0.02
      done
      printf '{"gate": "%s"}' "$gate" ;;
    fail)
      printf '{"error": "no such thing", "code": "E_FAIL", "retryable": false, "details": {"payload": %s}}\n' "$(cat)" >&3
      exit 1 ;;
    flaky)
      if [ "$JOBQ_ATTEMPT" = 1 ]; then
        printf '{"error": "not yet", "code": "E_FLAKY", "retryable": true, "retry_after": "%s"}\n' "$(field retry_after)" >&3
        exit 1
      fi
      printf '{"attempts": %d}' "$JOBQ_ATTEMPT" ;;
    raise) echo boom >&2; exit 1 ;;
    effect)
      done=$(psql -X -q -A -t -v ON_ERROR_STOP=1 -v id="$JOBQ_ID" -v token="$JOBQ_TOKEN" -d "$JOBQ_DSN" -f - <<'END'
BEGIN;
INSERT INTO public.effects (job, token) VALUES (:'id', :'token');
SELECT jobq.complete(:'id', :'token', '{"effect": true}') AS done \gset
\if :done
COMMIT;
\echo done
\else
ROLLBACK;
\endif
END
      ) || exit 1
      [ "$done" = done ] || exit 1
      echo '{"settled": true}' >&3 ;;
    checkpoint)
      if [ -z "$JOBQ_PROGRESS_DATA" ]; then
        echo '{"progress": 50, "data": {"step": 1}}' >&3
        echo '{"error": "resume", "retryable": true, "retry_after": 0}' >&3
        exit 1
      fi
      printf '{"resumed": %s}' "$JOBQ_PROGRESS_DATA" ;;
    batch)
      mapfile -t lines
      for line in "${lines[@]}"; do printf '{"n": %d, "of": %d}\n' "$(field n <<<"$line")" ${#lines[@]}; done ;;
    skip) echo '{"skip": "not needed"}' >&3 ;;
    snooze) sed 's/"delay"/"snooze"/' >&3; echo >&3 ;;
    progress)
      payload=$(cat)
      times=$(field times <<<"$payload")
      for ((n = 1; n <= ${times:-0}; n++)); do echo "{\"progress\": $((100 * n / times))}"; done >&3
      [ -z "$times" ] || exit 0
      echo '{"progress": 30}' >&3
      gate=$(field gate <<<"$payload")
      until [ -e "$JOBQ_DIR/$gate" ]; do sleep 0.02; done ;;
    log)
      printf '%s\n' '{"log": "it'"'"'s here"}' '{"log": "half way", "level": "warning", "data": {"n": [1]}}' >&3 ;;
    mixed | other)
      mapfile -t lines
      gate=$(field gate <<<"${lines[0]}")
      until [ -z "$gate" ] || [ -e "$JOBQ_DIR/$gate" ]; do sleep 0.02; done
      for line in "${lines[@]}"; do [[ $line == *'"n": 2}'* ]] && echo '{"n": 2' || echo "$line"; done ;;
    malformed)
      printf '%s\n' '{"progress": 50, "data": {"step": 1}}' '{"progress": 60, "data": {"step": }}' '{"error": "no' >&3
      echo boom >&2
      exit 1 ;;
    badskip) echo '{"skip": "\u0000"}' >&3 ;;
    badsnooze) echo '{"snooze": "1 huor"}' >&3 ;;
    badcode) echo '{"error": "gone", "code": 404, "retryable": false}' >&3; exit 1 ;;
    longcode) printf '{"error": "gone", "code": "%s", "retryable": false}\n' "$(head -c 300 /dev/zero | tr '\0' x)" >&3; exit 1 ;;
    big)
      if [ ! -s "$JOBQ_PROGRESS_FILE" ]; then
        printf '{"data": {"data": "%s"}}\n' "$(head -c 200000 /dev/zero | tr '\0' y)" >&3
        echo '{"error": "resume", "retryable": true, "retry_after": 0}' >&3
        exit 1
      fi
      printf '{"length": %d, "metadata": %d}' "$(tr -cd y <"$JOBQ_PROGRESS_FILE" | wc -c)" "$(tr -cd m <"$JOBQ_METADATA_FILE" | wc -c)" ;;
    note)
      pass_gate
      echo '{"log": "a note"}' >&3 ;;
    refused) if [[ $(cat) == *skip* ]]; then echo '{"skip": "\u0000"}' >&3; else echo '{"snooze": "no interval"}' >&3; fi ;;
    broken)
      psql -X -q -A -t -v id="$JOBQ_ID" -v token="$JOBQ_TOKEN" -d "$JOBQ_DSN" >/dev/null 2>&1 <<'END'
BEGIN;
SELECT 1 / 0;
SELECT jobq.complete(:'id', :'token');
ROLLBACK;
END
      pass_gate
      echo '{"after": true}' ;;
    report)
      payload=$(cat)
      pass_gate <<<"$payload"
      printf '%s\n' '{"progress": 50, "data": {"step": 1}}' '{"log": "reported"}' >&3
      : >"$JOBQ_DIR/$(field gate <<<"$payload").reported"
      pass_gate .end <<<"$payload" ;;
    chat)
      trap 'echo "{\"progress\": 40}" >&3; exit 1' TERM
      while kill -0 "$JOBQ_WORKER_PID"; do echo '{"progress": 30}' >&3; sleep 0.02; done ;;
    rude) trap 'echo "{\"error\": \"stopped\"}" >&3; exit 1' TERM; while kill -0 "$JOBQ_WORKER_PID"; do sleep 0.02; done ;;
    deaf | stubborn) trap '' TERM; while kill -0 "$JOBQ_WORKER_PID"; do sleep 1; done ;;
    variables) printf '{"LC_ALL": "%s", "TZ": "%s"}' "${LC_ALL-unset}" "${TZ-unset}" ;;
    poison) kill -KILL "$JOBQ_WORKER_PID"; exec sleep infinity ;;  # until it is stopped
  esac
  exit
fi
if [ "${1:-}" = span ]; then
  more=${JOBQ_OUTCOME:+, \"outcome\": \"$JOBQ_OUTCOME\"}
  [ "$2" != start ] || more=$(sed -n 's/.*\("traceparent": "[^"]*"\).*/, \1/p' <<<"${JOBQ_METADATA:-}")
  printf '{"event": "span_%s", "ts": "%(%FT%T)T", "level": "debug", "job_id": "%s"%s}\n' "$2" -1 "$JOBQ_ID" "$more" >&2
  exit
fi
handlers=()
for type in ${JOBQ_TYPES//,/ }; do
  name=$type
  case $type in batch) name='batch*10' ;; mixed | other) name=$type*5 ;; esac
  handlers+=("$name=exec '$here/worker.sh' handle $type")
done
listen=()
[ -z "${JOBQ_LISTEN_DSN:-}" ] || listen=(-L "$JOBQ_LISTEN_DSN")
pooler=()
[ "${JOBQ_POOLER:-0}" != 1 ] || pooler=(-p)
[ -z "${JOBQ_UNTIL_EMPTY:-}" ] || pooler+=(-e)
exec "$client" -d "$JOBQ_DSN" "${listen[@]}" "${pooler[@]}" -c "${JOBQ_CONCURRENCY:-1}" -l "${JOBQ_LEASE:-120}" \
  -P "${JOBQ_POLL:-1}" -g "${JOBQ_GRACE:-30}" -w "${JOBQ_WORKER:-shell}" -H "'$here/worker.sh' span" "${handlers[@]}"
