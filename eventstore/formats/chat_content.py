"""The content of chat messages as that of Responses items, and back.

Text passes as it is. Of content parts, texts, images and files have another name in items; any
other part has the same shape in both and passes as it is.
"""

from __future__ import annotations

from typing import Any, Final

from eventstore.errors import InvalidItem
from eventstore.errors import describe as show
from eventstore.log.events import Json

_ITEM_ONLY: Final = ("input_text", "output_text", "input_image", "input_file")
_NOT_IN_CHAT: Final = ("annotations", "logprobs")


def item_content(path: str, role: str, message: dict[str, Any]) -> tuple[Json, bool]:
    """Give a message's content for its item, and whether ``message_content`` gives it back exactly.

    Where there is none the item says so in its own way: by its refusal, or by an empty text.

    Raises:
        InvalidItem: the content is neither text, nor parts, nor null.
    """
    content = message.get("content")
    if isinstance(content, str):
        return content, True
    if content is None:
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            return [{"type": "refusal", "refusal": refusal}], False
        return "", False
    if not isinstance(content, list):
        raise InvalidItem(f"{path}.content", f"{show(content)} should be text, a list or null")
    parts: list[Json] = []
    exact = True
    for index, part in enumerate(content):
        if not isinstance(part, dict):
            raise InvalidItem(f"{path}.content[{index}]", f"{show(part)} should be an object")
        made, held = _item_part(role, part)
        parts.append(made)
        exact = exact and held
    return parts, exact


def message_content(content: Json) -> Json:
    """Give an item's content for its message."""
    if not isinstance(content, list):
        return content
    return [_message_part(part) if isinstance(part, dict) else part for part in content]


def _item_part(role: str, part: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    kind = part.get("type")
    if kind == "text":
        name = "output_text" if role == "assistant" else "input_text"
        made = {key: name if key == "type" else value for key, value in part.items()}
        return made, not any(key in part for key in _NOT_IN_CHAT)
    if kind == "image_url" and list(part) == ["type", "image_url"]:
        image = part["image_url"]
        plain = isinstance(image, dict) and list(image) in (["url"], ["url", "detail"])
        if plain and isinstance(image["url"], str):
            detail = {"detail": image["detail"]} if "detail" in image else {}
            return {"type": "input_image", "image_url": image["url"], **detail}, True
    elif kind == "file" and list(part) == ["type", "file"]:
        file = part["file"]
        if isinstance(file, dict) and "type" not in file:
            return {"type": "input_file", **file}, True
    return part, kind not in _ITEM_ONLY


def _message_part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text"):
        return {key: "text" if key == "type" else value for key, value in part.items() if key not in _NOT_IN_CHAT}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = {"url": part["image_url"]}
        if "detail" in part:
            image["detail"] = part["detail"]
        return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        return {"type": "file", "file": {k: v for k, v in part.items() if k != "type"}}
    return part
