#include "app/hardening.h"

#include <sys/prctl.h>
#include <sys/resource.h>

namespace orrery::app {

void forbid_dumps() {
#ifndef ORRERY_SANITIZED // the leak checker attaches to its own process
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

} // namespace orrery::app
