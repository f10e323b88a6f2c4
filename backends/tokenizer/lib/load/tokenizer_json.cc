// Loads a tokenizer.json: components, added tokens; the model by model_json.cc. What this library
// does not implement is refused here by name.
#include "backends/tokenizer/lib/load/side_files.h"
#include "backends/tokenizer/lib/load/tokenizer_document.h"
#include "backends/tokenizer/lib/load/tokenizer_parts.h"
#include "backends/tokenizer/lib/reading/json_fields.h"

namespace nereid::tokenizer {
PartsResult LoadTokenizerJson(std::string_view json, const SideOptions& side) {
  NEREID_ASSIGN_OR_RETURN(const TokenizerDocument document, ParseTokenizerDocument(json));
  const Json& root = *document.rest;
  if (!root.is_object()) return InvalidArgError("expected a JSON object, got ", root.type_name());
  const Json& version = Member(root, "version");
  if (!version.is_null() && version != "1.0") {
    return UnsupportedError("version ", version.dump(), " is not supported, only \"1.0\" is");
  }
  auto parts = std::make_unique<TokenizerParts>();
  NEREID_ASSIGN_OR_RETURN(parts->normalizer, Normalizer::Make(Member(root, "normalizer")));
  NEREID_ASSIGN_OR_RETURN(parts->pre_tokenizer,
                          PreTokenizer::Make(Member(root, "pre_tokenizer"), side.add_prefix_space));
  NEREID_RETURN_IF_ERROR(LoadModel(document, Member(root, "model"), *parts));
  NEREID_ASSIGN_OR_RETURN(parts->added, AddedTokens::Make(Member(root, "added_tokens"), side.added,
                                                          parts->vocabulary, parts->normalizer));
  NEREID_ASSIGN_OR_RETURN(parts->post, PostProcessor::Make(Member(root, "post_processor")));
  NEREID_ASSIGN_OR_RETURN(parts->truncation, Truncation::Read(Member(root, "truncation")));
  NEREID_ASSIGN_OR_RETURN(parts->padding, Padding::Read(Member(root, "padding")));
  if (parts->truncation) {
    NEREID_RETURN_IF_ERROR(parts->truncation->Check(parts->post.NumAdded(/*is_pair=*/false)));
  }
  NEREID_RETURN_IF_ERROR(FinishParts(Member(root, "decoder"), *parts));
  return parts;
}

}  // namespace nereid::tokenizer
