/*
 * What farreach-fabric-sys binds: the public headers of libfabric 1.17 (src/lib.rs says why not newer ones).
 *
 * bindgen numbers anonymous enumerations in the order in which it meets them. pthread.h has some, a different number in
 * each glibc, and libfabric needs only two types of it, which sys/types.h declares: so it is left out.
 */
#define _PTHREAD_H 1
#include <stdbool.h>
#include <sys/types.h>
#include <poll.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
