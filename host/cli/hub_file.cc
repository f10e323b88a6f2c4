#include "host/cli/hub_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "host/cli/file_hash.h"
#include "host/option_values.h"
#include "nereid/unique_fd.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFileAttempts = 6;  // without a further byte in between
// The limit for a file whose size the hub does not state.
constexpr uint64_t kMaxUnstatedBytes = uint64_t{1} << 30;

std::optional<uint64_t> ParseSize(const std::string& text) {
  const Result<int64_t> size = ParseIntValue(text, 0);
  return size.ok() ? std::optional<uint64_t>(static_cast<uint64_t>(*size)) : std::nullopt;
}

std::string Megabytes(uint64_t bytes) {
  return StrCat(bytes / 1'000'000, " MB");
}

// What the hub says about a file.
struct RemoteFile {
  std::string hash;  // its ETag
  std::optional<uint64_t> size_bytes;
};

class FileDownload {
 public:
  FileDownload(net::HttpClient& client, const HubConnection& hub, const HubId& id,
               const std::string& commit, const std::string& file, const HubCache& cache,
               const DownloadEvents& events)
      : client_(client),
        hub_(hub),
        id_(id),
        file_(file),
        cache_(cache),
        events_(events),
        url_(StrCat(hub.endpoint, "/", id.repository(), "/resolve/", commit, "/", Encoded(file))) {}

  // Afterwards the blob has the whole file. Returns its hash.
  Result<std::string> Run();

 private:
  // An error after which the same request may succeed.
  struct Attempt {
    Status status;
    bool may_repeat = false;
  };

  static std::string Encoded(const std::string& name);
  Attempt Describe(RemoteFile& remote);
  Status OpenPart();
  Attempt FetchRest();
  bool Write(std::string_view part);
  Status CheckRoom() const;
  Status Verify() const;
  std::string PartPath() const { return cache_.BlobPath(id_, remote_.hash) + ".incomplete"; }

  net::HttpClient& client_;
  const HubConnection& hub_;
  const HubId& id_;
  const std::string& file_;
  const HubCache& cache_;
  const DownloadEvents& events_;
  const std::string url_;
  RemoteFile remote_;
  UniqueFd part_;  // locked against other processes
  uint64_t num_bytes_ = 0;
  Status write_error_;
};

// Names of files may contain any printable character.
std::string FileDownload::Encoded(const std::string& name) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '.' || c == '_' || c == '-') {
      text += c;
    } else {
      text += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return text;
}

// Large files are redirected to a file store, whose own ETag means something else, so the first
// answer that has X-Linked-Etag counts. Redirects within the hub are followed.
FileDownload::Attempt FileDownload::Describe(RemoteFile& remote) {
  std::string url = url_;
  for (int i = 0; i <= kMaxRedirects; ++i) {
    net::HttpRequest request;
    request.method = "HEAD";
    request.url = url;
    request.headers = HeadersFor(hub_, url);
    const Result<net::HttpHead> head = client_.Send(request);
    if (!head.ok()) return {head.status(), true};
    const bool is_redirect = IsRedirect(head->status);
    if (!is_redirect && head->status != 200) {
      return {HubError(hub_, id_, file_, *head), IsTransient(head->status)};
    }
    const std::string linked = head->Header("x-linked-etag");
    const std::string location = head->Header("location");
    if (is_redirect && linked.empty()) {
      Result<std::string> target = RedirectTarget(url, location);
      if (!target.ok()) return {target.status()};
      url = std::move(*target);
      continue;
    }
    remote.hash = PlainETag(linked.empty() ? head->Header("etag") : linked);
    const std::string size = head->Header("x-linked-size");
    remote.size_bytes =
        ParseSize(size.empty() && !is_redirect ? head->Header("content-length") : size);
    if (IsPlainFileName(remote.hash) && remote.hash.size() <= 128) return {};
    return {
        InvalidArgError(url, ": the ETag '", remote.hash.substr(0, 64), "' cannot name a file")};
  }
  return {InvalidArgError(url_, ": more than ", kMaxRedirects, " redirects")};
}

// Opens what an earlier attempt has left. Waits while another process downloads the same file.
Status FileDownload::OpenPart() {
  part_ = UniqueFd(open(PartPath().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!part_.is_open()) return InternalError("'", PartPath(), "': ", std::strerror(errno));
  if (flock(part_.get(), LOCK_EX | LOCK_NB) != 0) {
    events_.on_note(StrCat(file_, ": another process is downloading it"));
    while (flock(part_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  struct stat state {};
  if (fstat(part_.get(), &state) != 0) {
    return InternalError("'", PartPath(), "': ", std::strerror(errno));
  }
  num_bytes_ = static_cast<uint64_t>(state.st_size);
  if (remote_.size_bytes && num_bytes_ > *remote_.size_bytes) {
    if (ftruncate(part_.get(), 0) != 0) {
      return InternalError("'", PartPath(), "': ", std::strerror(errno));
    }
    num_bytes_ = 0;
  }
  return Status::Ok();
}

Status FileDownload::CheckRoom() const {
  struct statvfs system {};
  if (!remote_.size_bytes || fstatvfs(part_.get(), &system) != 0) return Status::Ok();
  const uint64_t free_bytes = uint64_t{system.f_bavail} * system.f_frsize;
  const uint64_t needed_bytes = *remote_.size_bytes - num_bytes_;
  if (needed_bytes <= free_bytes) return Status::Ok();
  return UnavailableError(file_, ": needs ", Megabytes(needed_bytes), ", but ", cache_.root(),
                          " has ", Megabytes(free_bytes),
                          " free (HF_HUB_CACHE names another folder)");
}

// Appends to the part. Returns false, with write_error_, if that is not possible.
bool FileDownload::Write(std::string_view part) {
  const uint64_t limit = remote_.size_bytes.value_or(kMaxUnstatedBytes);
  if (part.size() > limit - num_bytes_) {
    write_error_ = InvalidArgError(file_, ": the hub sends more than the ", limit,
                                   " bytes that it has announced");
    return false;
  }
  while (!part.empty()) {
    const ssize_t count =
        pwrite(part_.get(), part.data(), part.size(), static_cast<off_t>(num_bytes_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      write_error_ = InternalError("'", PartPath(), "': ", std::strerror(errno));
      return false;
    }
    num_bytes_ += static_cast<uint64_t>(count);
    part.remove_prefix(static_cast<size_t>(count));
  }
  events_.on_bytes(file_, num_bytes_, remote_.size_bytes.value_or(0));
  return true;
}

// Requests what the part lacks, from wherever the hub redirects to.
FileDownload::Attempt FileDownload::FetchRest() {
  std::string url = url_;
  for (int i = 0; i <= kMaxRedirects; ++i) {
    const uint64_t begin = num_bytes_;
    net::HttpRequest request;
    request.url = url;
    request.headers = HeadersFor(hub_, url);
    if (begin > 0) request.headers.push_back(StrCat("Range: bytes=", begin, "-"));
    request.on_body = [&](const net::HttpHead& head, std::string_view part) {
      if (head.status == 206) return Write(part);
      if (head.status != 200) return true;
      // A server without ranges sends the whole file again.
      if (begin > 0 && num_bytes_ == begin) num_bytes_ = 0;
      return Write(part);
    };
    const Result<net::HttpHead> head = client_.Send(request);
    if (!write_error_.ok()) return {write_error_};
    if (!head.ok()) return {head.status(), true};
    if (IsRedirect(head->status)) {
      Result<std::string> target = RedirectTarget(url, head->Header("location"));
      if (!target.ok()) return {target.status()};
      url = std::move(*target);
      continue;
    }
    if (head->status == 206 &&
        !head->Header("content-range").starts_with(StrCat("bytes ", begin, "-"))) {
      return {InvalidArgError(url, ": asked for bytes from ", begin, ", got '",
                              head->Header("content-range"), "'")};
    }
    if (head->status == 200 || head->status == 206) return {};
    return {HubError(hub_, id_, file_, *head), IsTransient(head->status)};
  }
  return {InvalidArgError(url_, ": more than ", kMaxRedirects, " redirects")};
}

Status FileDownload::Verify() const {
  const HashKind kind = KindOfHash(remote_.hash);
  if (kind == HashKind::kNone) {
    events_.on_note(StrCat(file_, ": not verified, because the hub names no hash for it"));
    return Status::Ok();
  }
  NEREID_ASSIGN_OR_RETURN(const std::string hash, HashFile(PartPath(), kind));
  if (hash == remote_.hash) return Status::Ok();
  return InvalidArgError(file_, ": the download is damaged: expected ",
                         kind == HashKind::kSha256 ? "SHA-256 " : "git hash ", remote_.hash,
                         ", got ", hash);
}

Result<std::string> FileDownload::Run() {
  std::error_code ignored;
  uint64_t best_bytes = 0;
  bool was_damaged = false;
  for (int attempt = 0;; ++attempt) {
    Attempt done = Describe(remote_);
    if (done.status.ok()) {
      const std::string blob = cache_.BlobPath(id_, remote_.hash);
      if (!part_.is_open()) {
        if (fs::exists(blob, ignored)) return remote_.hash;
        NEREID_RETURN_IF_ERROR(OpenPart());
        if (fs::exists(blob, ignored)) return remote_.hash;  // by the process waited for
        NEREID_RETURN_IF_ERROR(CheckRoom());
      }
      const bool has_all = remote_.size_bytes && num_bytes_ == *remote_.size_bytes;
      if (!has_all) done = FetchRest();
      if (done.status.ok() && remote_.size_bytes && num_bytes_ < *remote_.size_bytes) {
        done = {UnavailableError("the connection was closed after ", num_bytes_, " of ",
                                 *remote_.size_bytes, " bytes"),
                true};
      }
      if (done.status.ok()) {
        if (ftruncate(part_.get(), static_cast<off_t>(num_bytes_)) != 0) {
          return InternalError("'", PartPath(), "': ", std::strerror(errno));
        }
        Status verified = Verify();
        if (verified.ok()) {
          std::error_code error;
          fs::rename(PartPath(), blob, error);
          if (error) return InternalError("'", blob, "': ", error.message());
          return remote_.hash;
        }
        // What an earlier attempt left may be damaged, so the whole file is tried once.
        num_bytes_ = 0;
        if (ftruncate(part_.get(), 0) != 0 || was_damaged) return verified;
        was_damaged = true;
        done = {std::move(verified), true};
      }
    }
    if (num_bytes_ > best_bytes) attempt = 0;
    best_bytes = std::max(best_bytes, num_bytes_);
    if (!done.may_repeat || attempt + 1 >= kMaxFileAttempts) {
      return std::move(done.status).WithContext(file_);
    }
    events_.on_note(StrCat(file_, ": ", done.status.message(), "; trying again"));
    PauseBeforeRetry(attempt);
  }
}

}  // namespace

Status DownloadHubFile(net::HttpClient& client, const HubConnection& hub, const HubId& id,
                       const std::string& commit, const std::string& file, const HubCache& cache,
                       const DownloadEvents& events) {
  FileDownload download(client, hub, id, commit, file, cache, events);
  NEREID_ASSIGN_OR_RETURN(const std::string hash, download.Run());
  return cache.LinkFile(id, commit, file, hash);
}

}  // namespace nereid::cli
