"""Schemas in the forms that people send: strict schemas of chat APIs, arguments of tools, models of Pydantic, OpenAPI components. Each has instances
that are valid, in the order of its properties."""

PRACTICAL = {
    "strict_math": (
        {"type": "object", "properties": {"steps": {"type": "array", "items": {"type": "object", "properties": {
            "explanation": {"type": "string"}, "output": {"type": "string"}}, "required": ["explanation", "output"], "additionalProperties": False}},
            "final_answer": {"type": "string"}}, "required": ["steps", "final_answer"], "additionalProperties": False},
        [{"steps": [{"explanation": "Add \"2\"", "output": "x = 4"}], "final_answer": "4"}, {"steps": [], "final_answer": ""}]),
    "strict_ui": (
        {"type": "object", "properties": {"type": {"type": "string", "enum": ["div", "button", "header"]}, "label": {"type": "string"},
                                          "children": {"type": "array", "items": {"$ref": "#"}},
                                          "attributes": {"type": "array", "items": {"type": "object", "properties": {
                                              "name": {"type": "string"}, "value": {"type": "string"}}, "additionalProperties": False,
                                              "required": ["name", "value"]}}},
         "required": ["type", "label", "children", "attributes"], "additionalProperties": False},
        [{"type": "div", "label": "", "children": [{"type": "button", "label": "Go", "children": [], "attributes": []}],
          "attributes": [{"name": "id", "value": "1"}]}]),
    "strict_union": (
        {"type": "object", "properties": {"item": {"anyOf": [
            {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "number"}}, "additionalProperties": False,
             "required": ["name", "age"]},
            {"type": "object", "properties": {"number": {"type": "string"}, "street": {"type": "string"}}, "additionalProperties": False,
             "required": ["number", "street"]}]}}, "additionalProperties": False, "required": ["item"]},
        [{"item": {"name": "A", "age": 3.5}}, {"item": {"number": "1", "street": "Main"}}]),
    "strict_linked_list": (
        {"type": "object", "properties": {"linked_list": {"$ref": "#/$defs/node"}},
         "$defs": {"node": {"type": "object", "properties": {"value": {"type": "number"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                            "additionalProperties": False, "required": ["next", "value"]}},
         "additionalProperties": False, "required": ["linked_list"]},
        [{"linked_list": {"value": 1, "next": {"value": -2e3, "next": None}}}]),
    "tool_weather": (
        {"type": "object", "properties": {"location": {"type": "string", "description": "City"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                                          "days": {"type": "integer", "minimum": 1, "maximum": 14}}, "required": ["location"]},
        [{"location": "Paris"}, {"location": "Zürich", "unit": "celsius", "days": 14}]),
    "tool_search": (
        {"type": "object", "properties": {"query": {"type": "string", "minLength": 1, "maxLength": 200},
                                          "filters": {"type": "object", "additionalProperties": {"type": "string"}},
                                          "limit": {"type": "integer", "default": 10, "exclusiveMinimum": 0}}, "required": ["query"]},
        [{"query": "a"}, {"query": "café", "filters": {"lang": "fr", "year": "2026"}, "limit": 5}]),
    "tool_choice": (
        {"oneOf": [{"type": "object", "properties": {"name": {"const": "get"}, "arguments": {"type": "object", "properties": {"id": {"type": "integer"}},
                                                                                             "required": ["id"]}}, "required": ["name", "arguments"]},
                   {"type": "object", "properties": {"name": {"const": "list"}, "arguments": {"type": "object", "maxProperties": 0}},
                    "required": ["name", "arguments"]}]},
        [{"name": "get", "arguments": {"id": 7}}, {"name": "list", "arguments": {}}]),
    "pydantic_optional": (
        {"title": "Person", "type": "object", "properties": {
            "name": {"title": "Name", "type": "string"}, "age": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "title": "Age"},
            "email": {"anyOf": [{"format": "email", "type": "string"}, {"type": "null"}], "default": None},
            "status": {"allOf": [{"$ref": "#/$defs/Status"}], "default": "on"}, "tags": {"items": {"type": "string"}, "type": "array"}},
         "$defs": {"Status": {"enum": ["on", "off"], "title": "Status", "type": "string"}}, "required": ["name"]},
        [{"name": "x"}, {"name": "x", "age": None, "email": "a.b@example.org", "status": "off", "tags": ["t"]}]),
    "pydantic_constraints": (
        {"properties": {"price": {"exclusiveMinimum": 0, "type": "number"}, "code": {"pattern": "^[A-Z]{2}-\\d{4}$", "type": "string"},
                        "ratio": {"maximum": 1, "minimum": 0, "type": "number"}, "pair": {"maxItems": 2, "minItems": 2, "prefixItems": [
                            {"type": "integer"}, {"type": "string"}], "type": "array"}}, "required": ["price", "code", "ratio", "pair"], "type": "object"},
        [{"price": 0.01, "code": "AB-1234", "ratio": 0.5, "pair": [1, "a"]}, {"price": 19, "code": "ZZ-0000", "ratio": 1, "pair": [-3, ""]}]),
    "pydantic_discriminated": (
        {"$defs": {"Cat": {"properties": {"kind": {"const": "cat", "type": "string"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"],
                           "type": "object"},
                   "Dog": {"properties": {"kind": {"const": "dog", "type": "string"}, "good": {"type": "boolean"}}, "required": ["kind", "good"],
                           "type": "object"}},
         "properties": {"pet": {"discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"},
                                "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}}, "required": ["pet"], "type": "object"},
        [{"pet": {"kind": "cat", "lives": 9}}, {"pet": {"kind": "dog", "good": True}}]),
    "openapi_order": (
        {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}, "created": {"type": "string", "format": "date-time"},
                                          "lines": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {
                                              "sku": {"type": "string", "pattern": "^[a-z0-9-]+$"}, "quantity": {"type": "integer", "minimum": 1},
                                              "price": {"type": "number", "minimum": 0}}, "required": ["sku", "quantity"], "additionalProperties": False}},
                                          "note": {"type": ["string", "null"]}}, "required": ["id", "lines"]},
        [{"id": "123e4567-e89b-12d3-a456-426614174000", "created": "2026-11-26T22:00:00Z", "lines": [{"sku": "a-1", "quantity": 2, "price": 0.5}],
          "note": None}]),
    "openapi_geo": (
        {"type": "object", "properties": {"type": {"const": "Point"}, "coordinates": {"type": "array", "items": {"type": "number"}, "minItems": 2,
                                                                                      "maxItems": 3}}, "required": ["type", "coordinates"]},
        [{"type": "Point", "coordinates": [-1.5, 2]}, {"type": "Point", "coordinates": [0, 0, 0]}]),
    "map_of_lists": (
        {"type": "object", "patternProperties": {"^[a-z]+_id$": {"type": "integer"}, "^is_": {"type": "boolean"}}, "additionalProperties": False},
        [{"user_id": 1, "is_new": True}, {}]),
    "config_file": (
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"port": {"type": "integer", "minimum": 1, "maximum": 65535}},
         "type": "object", "properties": {"host": {"type": "string", "format": "hostname"}, "port": {"$ref": "#/definitions/port"},
                                          "tls": {"type": "object", "properties": {"cert": {"type": "string"}, "key": {"type": "string"}},
                                                  "dependencies": {"cert": ["key"]}}}, "required": ["host"]},
        [{"host": "example.org", "port": 443, "tls": {"cert": "a", "key": "b"}}, {"host": "h", "tls": {}}]),
    "classification": ({"enum": ["positive", "negative", "neutral"]}, ["positive", "neutral"]),
    "list_of_numbers": ({"type": "array", "items": {"type": "integer", "multipleOf": 5}, "minItems": 1, "maxItems": 6}, [[5, 10, -15], [0]]),
    "nullable_tree": (
        {"$ref": "#/definitions/tree", "definitions": {"tree": {"type": ["object", "null"], "properties": {
            "left": {"$ref": "#/definitions/tree"}, "right": {"$ref": "#/definitions/tree"}}, "additionalProperties": False}}},
        [None, {"left": {"left": None}, "right": {}}]),
    "min_properties": ({"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}}, [{"a": 1}, {"b": 2, "a": 1}]),
    "names": ({"type": "object", "propertyNames": {"pattern": "^[a-z_]{1,8}$"}, "additionalProperties": {"type": ["number", "string"]}}, [{"a_b": 1, "c": "x"}]),
    "date_range": (
        {"type": "object", "properties": {"from": {"type": "string", "format": "date"}, "to": {"type": "string", "format": "date"},
                                          "at": {"type": "string", "format": "time"}}, "required": ["from", "to"]},
        [{"from": "2024-02-29", "to": "2024-12-31", "at": "23:59:59Z"}]),
    "anything": ({}, [1, [True, {"a": None}], "x", {"a": {"b": [1.5e-3]}}]),
    "free_object": ({"type": "object"}, [{}, {"a": 1, "b": {"a": [1]}}]),
    "exclusions": ({"type": "object", "properties": {"role": {"type": "string", "not": {"enum": ["admin", "root"]}}}, "required": ["role"]},
                   [{"role": "user"}, {"role": "admins"}]),
    "password": ({"type": "string", "pattern": "^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{8,16}$"}, ["Passw0rd", "ABCDEFG1"]),
    "unique_texts": ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, [[], ["a", "b"], ["é", "", "a\n"]]),
    "unique_choices": ({"type": "array", "items": {"enum": ["red", "green", "blue"]}, "uniqueItems": True, "minItems": 1}, [["red"], ["blue", "red", "green"]]),
    "unique_numbers": ({"type": "array", "items": {"type": "number"}, "uniqueItems": True}, [[1, 1.5, -2], [0, 10]]),
    "not_only_texts": ({"type": "object", "not": {"additionalProperties": {"type": "string"}}, "properties": {"a": {"type": "integer"}}},
                       [{"b": 1}, {"a": 3, "b": "x", "c": []}]),
    "additional_and_unevaluated": (
        {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}, "required": ["kind"], "unevaluatedProperties": False,
         "anyOf": [{"properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"additionalProperties": {"type": "boolean"}, "required": ["y"],
                                                                              "properties": {"kind": {"const": "b"}}}]},
        [{"kind": "a", "x": 1}, {"kind": "b", "y": True, "z": False}]),
    "refused_unique": ({"type": "array", "items": {"type": "object"}, "uniqueItems": True}, None),
    "condition": ({"type": "object", "properties": {"a": {"type": "string"}}, "if": {"required": ["a"]}, "then": {"required": ["b"]}}, [{}, {"a": "x", "b": 1}, {"b": 1}]),
}
