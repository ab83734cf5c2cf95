# Runs in the Debian root: mounts the shares, sets up the topology, runs the command, reports its
# exit code, and powers off.
# Ports: 1 is stdout of the command, 2 its stderr, 3 the status of the guest.
exec 3> /dev/vport0p3
end() {
    echo "exit $1" >&3
    sync
    echo o > /proc/sysrq-trigger
    sleep 60
}

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LC_ALL=C TERM=linux
. /run/farreach/environment

n=0
while read -r path; do
    mkdir -p "$path"
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose "share$n" "$path" || end 125
    n=$((n + 1))
done < /run/farreach/shares

# Each process that opens libfabric reads this list of 200,000 symbols to its end, for a symbol that
# only kernels of vendors have. Under emulation, that takes seconds.
mount --bind /dev/null /proc/kallsyms

busybox hostname guest
# `host` runs a command on host a or b.
mkdir -p /usr/local/bin
cp /run/farreach/host /usr/local/bin/host
chmod +x /usr/local/bin/host
ln -s host /usr/local/bin/host-agent

if ! . /run/farreach/topology.sh > /run/topology.log 2>&1; then
    echo "topology $(tr '\n' ' ' < /run/topology.log)" >&3
    end 125
fi

if [ "$FARREACH_TOPOLOGY" = guest-a ]; then
    # The other machine boots at the same time, and the command may need it at once.
    until echo | busybox nc -w 2 192.0.2.2 7 2> /dev/null | grep -q '^0$'; do sleep 0.1; done
fi

cd "$FARREACH_DIRECTORY" || end 125
echo ready >&3
if [ "$FARREACH_GUEST_ROLE" = shell ]; then
    # Unquoted: these are four words, `rows N cols N` of the terminal outside.
    stty $FARREACH_TERMINAL < /dev/hvc0
    # A separate terminal, so that Ctrl-C ends the command and not the guest.
    setsid --ctty --wait /bin/bash -i < /dev/hvc0 > /dev/hvc0 2>&1
elif [ "$FARREACH_GUEST_ROLE" = agent ]; then
    # The second of two machines: runs the commands of the first one until it is powered off.
    busybox nc -ll -p 7 -e /usr/local/bin/host-agent
else
    sh /run/farreach/command < /dev/null > /dev/vport0p1 2> /dev/vport0p2
fi
end $?
