// OpenSSL's functions for a process that speaks TLS only where its command line says so: the
// library is opened by the first port or client that needs it, as its symbols and relocations are
// half of what the dynamic linker would have to do at every start. Code includes OpenSSL's headers
// and calls its functions as ever; those named in openssl_on_demand.cc are there. [any thread]
#pragma once

#include "nereid/status.h"

namespace nereid {

// To come before the first call of any function of OpenSSL's. UNAVAILABLE names what is missing.
Status OpenOpenSsl();

}  // namespace nereid
