/* What src/bindings.rs is made from: rdma-core's public headers, without the providers' own. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
