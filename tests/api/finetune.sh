#!/bin/sh
# finetune.sh - a chat file to a fine-tuned model with curl alone; prints every call.
#
#   HONE_URL=http://127.0.0.1:8642 HONE_TOKEN=... tests/api/finetune.sh MODEL CHATS.jsonl OUTDIR [REQUEST_FIELDS]
#
# MODEL is root:path of a model folder on the server's machine; REQUEST_FIELDS a JSON fragment like '"max_steps": 4'.
set -eu
model=$1
chats=$2
out=$3
more=${4:-'"max_steps": 4'}
mkdir -p "$out"

# call METHOD PATH [curl options]: prints the call as one could type it, then the answer.
call() {
    method=$1
    path=$2
    shift 2
    printf '\n$ curl -sS -X %s -H "Authorization: Bearer $HONE_TOKEN"' "$method" >&2
    for word in "$@"; do printf " '%s'" "$word" >&2; done
    printf ' "$HONE_URL%s"\n' "$path" >&2
    curl -sS --fail-with-body -X "$method" -H "Authorization: Bearer $HONE_TOKEN" "$@" "$HONE_URL$path" |
        tee "$out/answer" | cut -c 1-600 >&2
    printf '\n' >&2
}
# field NAME: the first string of that name in the answer.
field() {
    sed -n "s/.*\"$1\": *\"\\([^\"]*\\)\".*/\\1/p" "$out/answer" | head -n 1
}

call PUT "/v1/files?filename=chats.jsonl&purpose=fine-tune" -T "$chats"
file=$(grep -o '"id": *"file-[a-z0-9]*"' "$out/answer" | head -n 1 | cut -d'"' -f4)
call GET "/v1/files/$file/report"
request="{\"model\": \"$model\", \"training_file\": \"$file\", \"method\": \"sft\", $more}"
call POST /v1/preview -H 'Content-Type: application/json' -d "$request"
grep -q '"labels"' "$out/answer"
call POST /v1/plan -H 'Content-Type: application/json' -d "$request"
call POST /v1/jobs -H 'Content-Type: application/json' -d "$request"
job=$(grep -o '"id": *"job-[a-z0-9]*"' "$out/answer" | head -n 1 | cut -d'"' -f4)

state=queued
for _ in $(seq 300); do
    call GET "/v1/jobs/$job" 2>/dev/null
    state=$(field state)
    case $state in succeeded | failed | cancelled) break ;; esac
    sleep 0.2
done
call GET "/v1/jobs/$job"
call GET "/v1/jobs/$job/events?type=data,eval,checkpoint"
[ "$state" = succeeded ]
call GET "/v1/jobs/$job/metrics"
call GET "/v1/jobs/$job/checkpoints/latest"
mkdir -p "$out/model"
for name in $(grep -o '"name": *"[^"]*"' "$out/answer" | cut -d'"' -f4); do
    printf '\n$ curl -sS -H "Authorization: Bearer $HONE_TOKEN" -o %s "$HONE_URL/v1/jobs/%s/checkpoints/latest/%s"\n' \
        "$name" "$job" "$name" >&2
    curl -sS --fail -H "Authorization: Bearer $HONE_TOKEN" -o "$out/model/$name" \
        "$HONE_URL/v1/jobs/$job/checkpoints/latest/$name"
done
echo "$job"
