// See schema_format.h.
#include "backends/llm_core/grammar/schema_format.h"

namespace nereid::llm::grammar {
namespace {

// Dates of RFC 3339 with the days that each month has, leap years included.
std::string Date() {
  const std::string leap_year =
      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
  return "(?!0000)(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
         "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
         leap_year + "-02-29)";
}

// Times without leap seconds, which are valid only at some moments.
std::string Time() {
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?"
         "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
}

std::string Ipv4() {
  const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return "(?:" + octet + "\\.){3}" + octet;
}

std::string Ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  const std::string low = "(?:" + group + ":" + group + "|" + Ipv4() + ")";
  std::string all = "(?:(?:" + group + ":){6}" + low;
  for (int before = 0; before <= 7; ++before) {  // groups before "::"
    const std::string head =
        before == 0 ? "" : group + "(?::" + group + "){" + std::to_string(before - 1) + "}";
    for (int after = 0; before + after <= 7; ++after) {
      if (after == 0) {
        all += "|" + head + "::";
      } else if (after == 1) {
        all += "|" + head + "::" + group;
      } else {
        all += "|" + head + "::(?:" + group + ":){" + std::to_string(after - 2) + "}" + low;
      }
    }
  }
  return all + ")";
}

std::string Hostname() {
  const std::string label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
  return "(?=.{1,253}$)" + label + "(?:\\." + label + ")*";
}

std::string Email() {
  const std::string atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
  return "(?=.{1,254}$)(?=[^@]{1,64}@)" + atom + "(?:\\." + atom +
         ")*@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
         "(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*";
}

std::string Duration() {
  const std::string time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const std::string date = "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)";
  return "P(?:" + date + "(?:" + time + ")?|" + time + "|[0-9]+W)";
}

std::string Uri() {
  const std::string hex = "%[0-9a-fA-F]{2}";
  const std::string unreserved = "A-Za-z0-9._~!$&'()*+,;=\\-";
  const std::string path_char = "(?:[" + unreserved + ":@]|" + hex + ")";
  const std::string authority = "(?:(?:[" + unreserved + ":]|" + hex + ")*@)?(?:\\[" + Ipv6() +
                                "\\]|(?:[" + unreserved + "]|" + hex + ")*)(?::[0-9]*)?";
  return "[a-zA-Z][a-zA-Z0-9+.-]*:(?://" + authority + "(?:/" + path_char + "*)*|/(?:" + path_char +
         "+(?:/" + path_char + "*)*)?|" + path_char + "+(?:/" + path_char +
         "*)*|)(?:\\?(?:" + path_char + "|[/?])*)?(?:#(?:" + path_char + "|[/?])*)?";
}

}  // namespace

std::string PatternOfFormat(std::string_view format) {
  if (format == "date") return Date();
  if (format == "time") return Time();
  if (format == "date-time") return Date() + "[tT]" + Time();
  if (format == "duration") return Duration();
  if (format == "uuid") {
    return "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
  }
  if (format == "email") return Email();
  if (format == "hostname") return Hostname();
  if (format == "ipv4") return Ipv4();
  if (format == "ipv6") return Ipv6();
  if (format == "uri") return Uri();
  return "";
}

}  // namespace nereid::llm::grammar
