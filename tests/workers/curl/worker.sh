#!/bin/sh
# A worker: takes messages of one flow from a tidegate host over HTTP, does a pretend job with each, and settles it.
#
# curl speaks with the host, python3 reads the JSON; jq would do as well. What a worker that is killed holds comes again
# when its leases end, not at once: nothing tells the host that it is gone.

address=${TIDEGATE_ADDRESS:-127.0.0.1:9641}
flow=${TIDEGATE_FLOW:-jobs}
name=${TIDEGATE_WORKER:-curl}
token=${TIDEGATE_TOKEN:-}
at_once=5 # messages of one pull

directory=$(mktemp -d) || exit 1
trap 'rm -r "$directory"' EXIT
pulled=$directory/pulled answered=$directory/answered kept=$directory/kept
# A line for each message: when its lease ends, its settlement, and what it is.
unsettled=$directory/unsettled
: >"$unsettled"
stopping=
trap 'stopping=1' TERM INT

# ask METHOD URL [BODY]: one request, and its answer. The token is not among the arguments, which others can see.
ask() {
    printf 'header = "authorization: Bearer %s"\n' "$token" |
        curl --config - --silent --show-error --fail-with-body --max-time 30 --request "$1" \
            --header 'content-type: application/json' ${3:+--data-binary "$3"} "http://$2"
}

# A line for each message of a pull: receipt, milliseconds of its lease, attempt, id, body.
messages() {
    python3 -c '
import json, sys
for one in json.load(sys.stdin)["deliveries"]:
    body = one.get("value", one.get("value-base64")).replace("\t", " ").replace("\n", " ")
    print(one["receipt"], one["lease-ms"], one["delivery-attempt"], one["message-id"], body, sep="\t")'
}

# A line for each result: receipt, status, and why.
results() {
    python3 -c '
import json, sys
for one in json.load(sys.stdin)["results"]:
    print(one["receipt"], one["status"], one.get("detail", ""), sep="\t")'
}

# The pretend job. Says what is to become of the message.
work() { # attempt, body
    sleep 0.05
    case $2,$1 in
    reject,*) printf '"verdict":"reject","reason":"it says so itself"' ;;
    defer,1) printf '"verdict":"defer","delay-ms":1000' ;;
    *) printf '"verdict":"accept"' ;;
    esac
}

tab=$(printf '\t')

# Settles what is not settled. What is to be tried again stays, until its lease ends.
settle() {
    [ -s "$unsettled" ] || return 0
    batch=$(head -n 100 "$unsettled" | cut -f 2 | paste -sd , -)
    if answer=$(ask POST "$address/v1/settle" "{\"settlements\":[$batch]}"); then
        printf '%s' "$answer" | results >"$answered"
    else
        echo "cannot settle now: $answer"
        : >"$answered"
    fi
    now=$(date +%s)
    while IFS=$tab read -r ends settlement what; do
        its_receipt=${settlement#'{"receipt":"'}
        result=$(grep -F "${its_receipt%%\"*}$tab" "$answered" | head -n 1 | cut -f 2-)
        status=${result%%"$tab"*}
        case $status in
        '' | retry-later)
            if [ "$now" -lt "$ends" ]; then
                printf '%s\t%s\t%s\n' "$ends" "$settlement" "$what" >>"$kept"
            else
                echo "unsettled $what"
            fi
            ;;
        *) echo "$status $what ${result#*"$tab"}" ;;
        esac
    done <"$unsettled"
    touch "$kept"
    mv "$kept" "$unsettled"
}

# Takes messages, works on them, and settles each. Fails when the host gives none out.
pull() { # how long it waits for some, in milliseconds
    answer=$(ask POST "$address/v1/flows/$flow/pull" \
        "{\"max-messages\":$at_once,\"wait-ms\":$1,\"worker\":\"$name\"}") || {
        echo "cannot pull now: $answer"
        return 1
    }
    pulled_at=$(date +%s)
    printf '%s' "$answer" | messages >"$pulled"
    while IFS=$tab read -r receipt lease attempt id body; do
        # What came too late for us, another can do.
        if [ "$stopping" ]; then verdict='"verdict":"release"'; else verdict=$(work "$attempt" "$body"); fi
        word=${verdict#'"verdict":"'}
        printf '%s\t{"receipt":"%s",%s}\t%s %s %s attempt %s\n' "$((pulled_at + lease / 1000))" "$receipt" \
            "$verdict" "${word%%\"*}" "$id" "$body" "$attempt" >>"$unsettled"
        settle
    done <"$pulled"
}

host=
until [ "$stopping" ]; do
    if [ -z "$host" ]; then
        host=$(ask GET "$address/v1/flows" | sed -n 's/.*"host":"\([^"]*\)".*/\1/p')
        [ "$host" ] && echo "subscribed at $host"
    fi
    # With something to settle again, it does not wait for long.
    if [ -s "$unsettled" ]; then wait_ms=200; else wait_ms=2000; fi
    if [ "$host" ] && pull "$wait_ms"; then
        failures=0
    else
        host= failures=$((${failures:-0} + 1))
        sleep "$((failures < 5 ? failures : 5))"
    fi
    settle
done
tries=0
while [ -s "$unsettled" ] && [ "$tries" -lt 30 ]; do
    settle
    [ -s "$unsettled" ] && sleep 1
    tries=$((tries + 1))
done
echo left
