# A reader's terminal. In the folder $1 it finds `steps`, a line for each: how it is run, its number, and how many lines it prints at first.
# The command is in NUMBER.command. It leaves NUMBER.out and NUMBER.err, and in NUMBER.end the exit code and how long it took in ms.
folder=$1
# What the terminal before this one has exported.
export -p | sort > "$folder/had"
[ ! -e "$folder/before" ] || . "$folder/before"

milliseconds() {
    echo $(($(date +%s%N) / 1000000))
}

# ended NUMBER CODE BEGAN
ended() {
    echo "$2 $(($(milliseconds) - $3))" > "$folder/$1.end"
}

# run NUMBER: in this shell, because a command may be an export.
run() {
    began=$(milliseconds)
    eval "$(cat "$folder/$1.command")" > "$folder/$1.out" 2> "$folder/$1.err" < /dev/null
    ended "$1" $? "$began"
}

# stay NUMBER LINES: in another terminal.
stay() {
    began=$(milliseconds)
    : > "$folder/$1.out"
    sh -c "exec $(cat "$folder/$1.command")" > "$folder/$1.out" 2> "$folder/$1.err" < /dev/null &
    others="$others $1:$!:TERM:$began"
    watch "$1" "$2" $!
}

# behind NUMBER LINES: a command that its `&` puts into the background.
behind() {
    began=$(milliseconds)
    eval "$(cat "$folder/$1.command")" > "$folder/$1.out" 2> "$folder/$1.err" < /dev/null
    others="$others $1:$!:0:$began"
    watch "$1" "$2" $!
}

# watch NUMBER LINES PID: the next command is typed when this one has printed so much, or has ended. Half a minute is enough to know better.
watch() {
    tries=300
    while [ $tries -gt 0 ] && [ "$(wc -l < "$folder/$1.out")" -lt "$2" ] && kill -0 "$3" 2> /dev/null; do
        sleep 0.1
        tries=$((tries - 1))
    done
}

others=
while read -r how number lines <&3; do
    $how "$number" "$lines"
done 3< "$folder/steps"

# What stays is told to end, and what was in the background is waited for.
for other in $others; do
    IFS=: read -r number pid signal began << WORDS
$other
WORDS
    [ "$signal" = 0 ] || kill -s "$signal" "$pid" 2> /dev/null
    wait "$pid"
    ended "$number" $? "$began"
done
export -p | sort | comm -13 "$folder/had" - > "$folder/exported"
