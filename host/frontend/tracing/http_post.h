// One HTTP POST to a collector, HTTP/1.1. Blocks. [any thread]
#pragma once

#include <string_view>

#include "host/frontend/tls/tls_client.h"
#include "host/frontend/tracing/http_url.h"
#include "nereid/status.h"

namespace nereid {

// The status of an answer of which the beginning is here: 0 while more of it is needed. What is not
// HTTP is an error that shows how it begins.
Result<int> ReadHttpStatus(std::string_view answer);

// Ok when the answer's status is 2xx. Gives up after `timeout_s` without progress; an answer that
// comes in pieces has twice as long. `tls` is not null where the URL wants it.
Status HttpPost(const HttpUrl& url, const TlsClient* tls, std::string_view content_type,
                std::string_view body, int timeout_s);

}  // namespace nereid
