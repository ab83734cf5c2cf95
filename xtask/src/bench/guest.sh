# Runs in the guest of `cargo xtask bench guest`: guest.sh RESULTS PERF FARREACH RUNS. RESULTS holds the
# list `measurements`: lines of NAME, PROGRAM and the client's words, separated by tabs. The output of
# run N of a measurement goes to the file NAME.N.
results=$1 perf=$2 farreach=$3 runs=$4

# A program that takes longer hangs. This is the guest's time.
limit="timeout 60"

# await TRIES COMMAND…: until the command succeeds.
await() {
    tries=$1
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.05
    done
}

# The port of perftest is 18515, which /proc writes as 4853; 0A is LISTEN.
perftest_listens() { host b grep -qs ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; }

# measure PROGRAM FILE WORD…: the words are those of the client, and for perftest those of the server.
measure() {
    program=$1 file=$2 server=
    shift 2
    case $program in
    engine)
        test=$1
        shift
        host a $limit "$farreach" "$test" 192.0.2.2 -d rxea --insecure --json "$@" > "$file" 2> /tmp/errors
        ;;
    verbs)
        host b $limit "$perf" serve > /tmp/server 2>&1 &
        server=$!
        await 400 grep -q listening /tmp/server &&
            host a $limit "$perf" 192.0.2.2 "$@" > "$file" 2> /tmp/errors
        ;;
    *)
        host b $limit "$program" -d rxeb -F "$@" > /tmp/server 2>&1 &
        server=$!
        await 400 perftest_listens &&
            host a $limit "$program" -d rxea -F "$@" 192.0.2.2 > "$file" 2> /tmp/errors
        ;;
    esac
    code=$?
    if [ -n "$server" ]; then
        # The server of a failed client waits for another one.
        [ "$code" = 0 ] || kill "$server"
        wait "$server" || code=1
    fi
    [ "$code" = 0 ] || cat /tmp/errors /tmp/server >> "$file" 2> /dev/null
    rm -f /tmp/errors /tmp/server
    return "$code"
}

host b "$farreach" serve -d rxeb --insecure > /tmp/serve 2>&1 &
await 1000 grep -q listening /tmp/serve || { cat /tmp/serve >&2; exit 1; }

run=1
while [ "$run" -le "$runs" ]; do
    while IFS='	' read -r name program words <&4; do
        # Unquoted: these are several words.
        measure "$program" "$results/$name.$run" $words || echo "guest: $name failed in run $run" >&2
    done 4< "$results/measurements"
    echo "guest: run $run of $runs is done" >&2
    run=$((run + 1))
done
