// Loads OpenSSL at run time, when the first port needs TLS. Its symbols and relocations would be
// half of the dynamic linker's work at every start. Code includes OpenSSL's headers and calls its
// functions as usual; openssl_on_demand.cc defines those that are used. [any thread]
// Gain: a start without models takes 10.0 instead of 14.7 million instructions outside the kernel.
#pragma once

#include "nereid/status.h"

namespace nereid::net {

// Must succeed before any OpenSSL function is called. UNAVAILABLE names what is missing.
Status LoadOpenSsl();

}  // namespace nereid::net
