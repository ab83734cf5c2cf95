# The network and its Soft-RoCE devices. It uses documentation addresses (RFC 5737, RFC 3849), which
# exist nowhere else.
set -e
ip link set lo up

# network_end NAMESPACE|- LINK ADDRESS-SUFFIX DEVICE: one end of a link, with an RDMA device on it.
network_end() {
    in_namespace=
    [ "$1" = - ] || in_namespace="ip netns exec $1"
    $in_namespace ip link set lo up
    # Addresses are usable at once, because there is no other host on this link.
    $in_namespace ip addr add "192.0.2.$3/24" dev "$2"
    $in_namespace ip addr add "2001:db8::$3/64" dev "$2" nodad
    $in_namespace ip link set "$2" up
    [ -z "$4" ] || $in_namespace rdma link add "$4" type rxe netdev "$2"
}

case "$FARREACH_TOPOLOGY" in
one)
    ip link add v0 type veth peer name v1
    ip link set v1 up
    network_end - v0 1 rxe0
    ;;
two)
    # The namespaces share the list of devices (`rdma system` shows this), and each sees the network
    # device and the addresses of its own device only. Exclusive lists would be closer to two hosts, but
    # moving a Soft-RoCE device to a namespace crashes Linux 7.2.
    ip netns add a
    ip netns add b
    ip link add va netns a type veth peer name vb netns b
    network_end a va 1 rxea
    network_end b vb 2 rxeb
    ;;
guest-a)
    network_end - eth0 1 rxea
    ;;
guest-b)
    network_end - eth0 2 rxeb
    ;;
none) ;;
esac
set +e
