"""One HTTP request, whatever the status of its answer."""
import json
import urllib.error
import urllib.request


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def send_http(url, body=None, headers=None, method=None, timeout_s=120):
    """Sends a request and returns (status, headers, body) of its answer. A body that is not bytes is sent as JSON. Redirects are not followed."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with _OPENER.open(urllib.request.Request(url, data, headers or {}, method=method), timeout=timeout_s) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()
