// GET and POST /v2/logging: what the server logs, read and changed while it runs. [loop thread]
#pragma once

#include "host/frontend/http/transport/connection.h"
#include "host/frontend/log_settings.h"

namespace nereid::http {

// Both methods answer with the settings that are now in force.
void ReplyLogSettings(Connection& connection, LogSettings& settings, Method method,
                      const Body& body);

}  // namespace nereid::http
