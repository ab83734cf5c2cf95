# Runs the commands of README. The file `steps` in the folder $1 has a line for each command: how to
# run it, its number, and how many lines it prints at first.
# The command is in NUMBER.command. The script writes its output to NUMBER.out and NUMBER.err, and its
# exit code and duration in ms to NUMBER.end.
folder=$1
# The variables that the previous session has exported.
export -p | sort > "$folder/had"
[ ! -e "$folder/before" ] || . "$folder/before"
# Commands that build nothing write their files here, and not to the repository.
[ ! -e "$folder/work" ] || cd "$folder/work" || exit 1

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

# watch NUMBER LINES PID: waits until the command has printed LINES lines or has ended, for at most 30 s.
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

# Servers are ended, and commands in the background are waited for.
for other in $others; do
    IFS=: read -r number pid signal began << WORDS
$other
WORDS
    [ "$signal" = 0 ] || kill -s "$signal" "$pid" 2> /dev/null
    wait "$pid"
    ended "$number" $? "$began"
done
export -p | sort | comm -13 "$folder/had" - > "$folder/exported"
