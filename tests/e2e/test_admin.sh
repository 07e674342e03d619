#!/bin/sh
# Operators over HTTP: versions, deployments and roll-backs with a key of the scope admin, each in the audit log; nobody
# else, and nobody at all where no keys are asked for.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"
# ask KEY METHOD PATH [BODY]: the status; the answer is in `answer`.
ask() {
    curl -s -o answer -w '%{http_code}\n' -X "$2" "$url$3" ${1:+-H "X-Api-Key: $1"} ${4:+-d "$4"}
}
# expect STATUS KEY METHOD PATH [BODY]
expect() {
    wanted=$1
    shift
    got=$(ask "$@")
    [ "$got" = "$wanted" ] || fail "$got, not $wanted: $* $(cat answer) $(tail -n 5 log)"
}

train_tiny
cp -r runs/tiny/checkpoints/step-00000002 first
run 0 "$banyan" train --resume runs/tiny --quiet --set train.steps=3
for who in admin plain; do
    echo "$(printf %s $who | sha256sum | cut -d ' ' -f 1) $who $([ $who = admin ] && echo admin || echo inference)"
done >keys

say "with keys, and a directory that everybody may look into"
mkdir -m 755 sock
umask 022
serve_ready --keys keys --set feedback.directory="$work/feedback"
[ -z "$(find sock feedback -mindepth 1 -perm /077)$(find feedback -perm /077)" ] || fail "$(ls -lR sock feedback)"
expect 401 "" GET /v1/admin/versions
holds answer "a key is needed"
expect 401 wrong GET /v1/models
holds answer "this key is not one of the server's"
expect 404 plain GET /v1/nothing
expect 403 plain GET /v1/admin/versions
expect 403 plain POST /v1/admin/deploy
expect 200 admin GET /v1/admin/versions
holds answer '"version":"step-00000003-'
expect 400 admin POST /v1/admin/deploy '{"path": "first"}'
holds answer "must begin with /"
expect 400 admin POST /v1/admin/deploy '{"adapter": "first"}'
holds answer "'adapter' must begin with /"
expect 400 admin POST /v1/admin/deploy "{\"adapter\": \"$work/none\"}"
holds answer "there is no such directory of an adapter"
expect 400 admin POST /v1/admin/deploy '{"where": "/"}'
expect 400 admin POST /v1/admin/deploy '[]'
expect 400 admin POST /v1/admin/deploy '{"hold": -5}'
holds answer "hold -5: give seconds"
expect 400 admin POST /v1/admin/deploy '{"slower": 0.1}'
expect 400 admin POST /v1/admin/deploy "{\"path\": \"$work/none\"}"
expect 409 admin POST /v1/admin/deploy "{\"path\": \"$work/runs/tiny\"}"
holds answer "is already live"
expect 409 admin POST /v1/admin/rollback
expect 202 admin POST /v1/admin/deploy "{\"path\": \"$work/first\"}"
until_version() {
    for _ in $(seq 3000); do
        expect 200 admin GET /v1/admin/versions
        ! grep -q "\"version\":\"$1.*\"outcome\":\"$2\"" answer || return 0
        sleep 0.1
    done
    fail "$1 is not $2: $(cat answer)"
}
until_version first deployed
# The control socket says the same.
"$banyan" deploy --status --json --dir "$work/sock" >status
[ "$(field version <status)" = "$(tr ',' '\n' <answer | field version)" ] || fail "$(cat status answer)"
expect 202 admin POST /v1/admin/rollback '{}'
until_version step-00000003 deployed
stop
audits() { grep '"event":"audit"' log | grep -c "$1"; }
[ "$(audits "\"key\":\"admin\".*\"path\":\"/v1/admin/deploy\",\"status\":202,\"deploy\":\"$work/first\"")" = 1 ] ||
    fail "$(grep audit log)"
[ "$(audits '"status":403')" = 2 ] && [ "$(audits '"status":401')" = 1 ] || fail "$(grep audit log)"
[ "$(audits '"path":"/v1/admin/rollback","status":202')" = 1 ] || fail "$(grep audit log)"

for code in '"status":401,.*"code":"invalid_api_key"' '"status":404,.*"code":"route_not_found"' '"status":403,.*"code":"insufficient_scope"'; do
    grep '"event":"request"' log | grep -q -e "$code" || fail "$code: $(grep '"event":"request"' log)"
done
! grep -q '"seconds":[0-9.]*e-' log || fail "$(grep '"seconds"' log)"
! grep -q '"seconds":[0-9]*\.[0-9]\{5\}' log || fail "$(grep '"seconds"' log)"

say "without keys"
serve
expect 403 "" POST /v1/admin/rollback
stop
