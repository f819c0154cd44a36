#!/usr/bin/env python3
"""jinja_oracle.py - what Jinja2, set up as transformers does, makes of many templates.

    tests/jinja_oracle.py BUILTINS

BUILTINS is a JSON file, {name: template}, of templates to try beside those below. Every line written is one case:
{"name", "template", "variables", "text"}, or "error" (the words of raise_exception, or "") in place of the text.
"""
import json
import sys
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """{% generation %} blocks, which here only have to pass."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text", []), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


class Refusal(Exception):
    pass


def raise_exception(message):
    raise Refusal(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)

U = lambda text: {"role": "user", "content": text}
A = lambda text: {"role": "assistant", "content": text}
S = lambda text: {"role": "system", "content": text}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "abcdef123", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich \"x\"", "n": 2}}}
    ],
}
TWO_CALLS = {
    "role": "assistant",
    "content": "Both:",
    "tool_calls": [
        {"id": "abcdef123", "type": "function", "function": {"name": "a", "arguments": {}}},
        {"id": "abcdef124", "type": "function", "function": {"name": "b", "arguments": {"x": [1, 2.5, None, True], "y": {"z": "é"}}}},
    ],
}
R = lambda text: {"role": "tool", "name": "weather", "tool_call_id": "abcdef123", "content": text}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city, in °C.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Which city"},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                    "days": {"type": "array", "items": {"type": "integer"}},
                    "more": {"type": ["string", "null"]},
                    "deep": {"type": "object", "properties": {"a": {"type": "number"}}},
                },
                "required": ["city"],
            },
            "return": {"type": "object"},
        },
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
CONVERSATIONS = [
    ("one", [U("Hi")], None),
    ("two", [U("Hi"), A("Hello")], None),
    ("system", [S("You are kind."), U("Hi"), A("Hello"), U("More"), A("Yes")], None),
    ("system only", [S("You are kind.")], None),
    ("blanks", [U("  Hi\n"), A("\n Hello \t"), U("   "), A("")], None),
    ("empty", [U(""), A(""), U(""), A("")], None),
    ("none", [], None),
    ("same text", [U("a"), A("a"), U("a"), A("a"), U("a")], None),
    ("users in a row", [U("1"), U("2"), A("3")], None),
    ("assistant first", [A("1"), U("2"), A("3"), A("4")], None),
    ("late system", [U("1"), S("2"), A("3")], None),
    ("unicode", [U("日本語 ß é 😀 \u2028 x\u00a0"), A("مرحبا\u200f e\u0301"), U("\t\r\n"), A("\\n'\"{{ x }}{% y %}")], None),
    ("special", [U("<|im_end|></s><s>[INST]"), A("<|eot_id|> {# no #} </think> after"), U("x<think>y</think>z"), A("<think>why</think>\n\nso")], None),
    ("call", [S("Tools."), U("Weather?"), CALL, R("21 °C"), A("Warm."), U("Thanks"), A("Bye")], TOOLS),
    ("calls", [U("Both?"), TWO_CALLS, R("1"), R('{"k": "v"}'), A("Done")], TOOLS),
    ("tools unused", [U("Hi"), A("Hello")], TOOLS),
    ("tools empty", [U("Hi"), A("Hello")], []),
    ("call without tools", [U("Hi"), CALL, R("x")], None),
    ("odd role", [{"role": "critic", "content": "x"}], None),
    ("weights", [U("a"), dict(A("b"), weight=0), U("c"), dict(A("d"), weight=1)], None),
    ("long", [U("w " * 200), A("v\n" * 200)] * 3, None),
]
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}

TEMPLATES = {}
TEMPLATES["llama2 of old"] = """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}{% elif false == true and not '<<SYS>>' in messages[0]['content'] %}{% set rest = messages %}{% set system = 'x' %}{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'system' %}{{ '<<SYS>>\\n' + content.strip() + '\\n<</SYS>>\\n\\n' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
TEMPLATES["zephyr of old"] = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
TEMPLATES["phi of old"] = """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') %}{{'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + '<|assistant|>' + '\n'}}{% elif (message['role'] == 'assistant') %}{{message['content'] + '<|end|>' + '\n'}}{% endif %}{% endfor %}"""
TEMPLATES["tools and a date"] = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message comes first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's none!") }}
{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {{- "Answer with a call.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("only single tool-calls") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and tool_call.name in builtin_tools %}
            {{- "<|python_tag|>" + tool_call.name + ".call(" }}
            {%- for arg_name, arg_val in tool_call.arguments | items %}
                {{- arg_name + '="' + arg_val + '"' }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- endif %}
                {%- endfor %}
            {{- ")" }}
        {%- else  %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
            {{- '{"name": "' + tool_call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- tool_call.arguments | tojson }}
            {{- "}" }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
TEMPLATES["calls between tags"] = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You help.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n{\\"name\\": <name>, \\"arguments\\": <args>}<|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
TEMPLATES["macros over types"] = """{%- macro type_of(param) -%}
    {%- set basic = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
    {%- if basic[param.type] is defined %}
        {{- basic[param.type] }}
    {%- elif param.type == "array" %}
        {{- "List[" + type_of(param["items"]) + "]" }}
    {%- elif param.type == "object" %}
        {%- if param.additionalProperties is defined %}
            {{- "Dict[str, " + type_of(param.additionalProperties) + "]" }}
        {%- else %}
            {{- "Dict" }}
        {%- endif %}
    {%- elif param.type is iterable %}
        {{- "Union[" }}
        {%- for t in param.type %}
            {{- type_of({"type": t}) }}
            {%- if not loop.last %}
                {{- "," }}
            {%- endif %}
        {%- endfor %}
        {{- "]" }}
    {%- else %}
        {{- "Any" }}
    {%- endif %}
{%- endmacro %}
{{- bos_token }}
{{- "<|im_start|>system\\nSigns: <tools> " }}
{%- for tool in tools or [] %}
    {%- if tool.function is defined %}
        {%- set tool = tool.function %}
    {%- endif %}
    {{- '{"type": "function", "function": ' }}
    {{- '{"name": "' + tool.name + '", ' }}
    {{- '"description": "' + tool.name + '(' }}
    {%- for param_name, param_fields in tool.parameters.properties|items %}
        {{- param_name + ": " + type_of(param_fields) }}
        {%- if not loop.last %}
            {{- ", " }}
        {%- endif %}
    {%- endfor %}
    {{- ")" }}
    {%- if tool.return is defined %}
        {{- " -> " + type_of(tool.return) }}
    {%- endif %}
    {{- " - " + tool.description + "\\n\\n" }}
    {%- for param_name, param_fields in tool.parameters.properties|items %}
        {%- if loop.first %}
            {{- "    Args:\\n" }}
        {%- endif %}
        {{- "        " + param_name + "(" + type_of(param_fields) + "): " + (param_fields.description|default('-')|trim) }}
    {%- endfor %}
    {{- ', "parameters": ' }}
    {%- if tool.parameters.properties | length == 0 %}
        {{- "{}" }}
    {%- else %}
        {{- tool.parameters|tojson }}
    {%- endif %}
    {{- "}" if loop.last else "}\\n" }}
{%- endfor %}
{{- " </tools>" }}{{- "<|im_end|>\\n" }}
{%- for message in messages %}
    {%- if message.role == "user" or message.role == "system" or (message.role == "assistant" and message.tool_calls is not defined) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
    {%- for tool_call in message.tool_calls %}
       {{- '\\n<tool_call>\\n' }}           {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '{' }}
            {{- '"name": "' }}
            {{- tool_call.name }}
            {{- '"' }}
            {{- ', '}}
            {%- if tool_call.arguments is defined %}
                {{- '"arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments|tojson }}
                {%- endif %}
            {%- endif %}
            {{- '}' }}
            {{- '\\n</tool_call>' }}
    {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
            {{- '<|im_start|>tool\\n' }}
        {%- endif %}
        {{- '<tool_response>\\n' }}
        {{- message.content }}
        {%- if not loop.last %}
            {{- '\\n</tool_response>\\n' }}
        {%- else %}
            {{- '\\n</tool_response>' }}
        {%- endif %}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '<|im_end|>' }}
        {%- elif loop.last %}
            {{- '<|im_end|>' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
TEMPLATES["strict turns with ids"] = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- Users and assistants alternate, calls left out. #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("ids have 9 characters") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
"""
TEMPLATES["thinking dropped"] = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments']|tojson + '\\n' + '```' + '<｜tool▁call▁end｜>'}}{%- set ns.is_first = true -%}{%- else %}{{'\\n' + '<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '<｜tool▁call▁end｜>'}}{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\\n<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}"""
TEMPLATES["turn tokens"] = """{{ bos_token }}{% if documents %}{% set tools = [] %}{% endif %}
{%- macro document(doc) %}
Document: {{ loop_index }}
{%- for key, value in doc|dictsort %}
{{ key }}: {{ value }}
{%- endfor -%}
{%- endmacro -%}
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = '## Task\\nHelp.' %}{% endif %}
{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' }}{{ system_message }}
{% if tools %}
{% for tool in tools %}
```python
def {{ tool.function.name }}({% for name, p in tool.function.parameters.properties.items() %}{{ name }}: {{ p.type if p.type is string else p.type | join(' | ') }}{% if not loop.last %}, {% endif %}{% endfor %}):
    \"\"\"{{ tool.function.description | default('none', true) }}

{% for name, p in tool.function.parameters.properties | dictsort %}
        {{ name.upper() }} ({{ p.get('description', '-') }}){{ ' required' if name in tool.function.parameters.required }}
{% endfor %}
    \"\"\"
```
{% endfor %}
{{ document({'title': 't', 'Body': 'b'}) }}
{% endif %}
{{ '<|END_OF_TURN_TOKEN|>' }}
{% for message in loop_messages %}
  {% set content = message['content'] %}
  {% if message['role'] == 'user' %}
    {{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}
  {% elif message['role'] == 'assistant' and content is string %}
    {%+ if loop.first +%} first {%+ endif +%}
    {{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' -}}
  {% else %}
    {#- nothing -#}
  {% endif %}
{% endfor %}{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}

"""
TEMPLATES["reversed look for queries"] = """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
TEMPLATES["merged turns"] = """{%- set ns = namespace(role='', text='') -%}
{%- for message in messages if message.content is not none -%}
    {%- if message.role == ns.role -%}
        {%- set ns.text = ns.text ~ '\\n\\n' ~ message.content -%}
    {%- else -%}
        {{- '<' ~ ns.role ~ '>' ~ ns.text ~ '</s>' if ns.role -}}
        {%- set ns.role = message.role -%}
        {%- set ns.text = message.content -%}
    {%- endif -%}
{%- else -%}
nobody spoke
{%- endfor -%}
{{- '<' ~ ns.role ~ '>' ~ ns.text ~ '</s>' if ns.role -}}"""
TEMPLATES["generation"] = """{% for m in messages %}
{% if m.role == 'assistant' %}<a>{% generation %}{{ m.content }}</s>
{% endgeneration %}{% else %}<u>{{ m.content }}
{% endif %}
{% endfor %}"""
TEMPLATES["block sets"] = """{% set header %}
  # {{ messages | length }} messages
{% endset %}
{% set loud | upper | replace('A', 4) %} what {{ messages[0].content }}{% endset %}
{{ header }}[{{ loud }}]
{% filter indent(2) | trim %}
a
{% for m in messages %}{{ m.role }}
{% endfor %}
{% endfilter %}
{% with a = 1, b = messages | map(attribute='role') | unique | list %}{{ a }}{{ b }}{% endwith %}
{% raw %}{{ not this }} {% nor %} {# that #}{% endraw %}
{% call(x) wrap('h') %}{{ x }}!{{ messages[-1].role }}{% endcall %}
"""
TEMPLATES["block sets"] = "{% macro wrap(t, end=t) %}<{{ t }}>{{ caller(t) }}</{{ end }}>{% endmacro %}" + TEMPLATES["block sets"]

DATA = {
    "s": "Hello World, hello",
    "u": "ÄÖ ß straße 日本 😀é",
    "ws": " \t\n x y \u3000\u00a0",
    "n": 7,
    "neg": -7,
    "f": 2.5,
    "big": 1e22,
    "tiny": 0.00001,
    "list": [3, 1, 2],
    "words": ["b", "A", "c", "B", "a"],
    "mixed": [1, "a", None, True, 2.0, [1], {"k": "v"}],
    "d": {"b": 1, "a": {"x": [1, 2]}, "B": "é'\"", "items": 5},
    "people": [{"name": "Zoë", "age": 3, "tags": ["x"]}, {"name": "adam", "age": 1, "tags": []}, {"name": "Bob", "age": 2}],
    "none": None,
    "yes": True,
    "no": False,
    "quote": "it's \"q\" \\ \n\t\x07\u00ad\u2028\U000e0001",
    "empty": "",
    "el": [],
    "ed": {},
}
EXPRESSIONS = """
1 + 2 * 3 ** 2
-2 ** 2
2 ** -1
7 // 2 ~ ' ' ~ -7 // 2 ~ ' ' ~ 7 % 3 ~ ' ' ~ -7 % 3 ~ ' ' ~ 7 % -3
7 / 2 ~ ' ' ~ 6 / 2
7.5 // 2 ~ ' ' ~ -7.5 % 2
1 == 1.0
true == 1
1 < 2 < 3
1 < 3 < 2
'a' < 'b'
[1, 2] < [1, 3]
'1' == 1
none == false
1 in [1.0]
'a' in 'cat'
'a' not in 'cat'
'k' in {'k': 1}
5 not in range(5)
not true or true and not false
(not n) ~ (not none)
1 if false
(1 if false) is defined
1 if yes else 2 if no else 3
'a' 'b' "c"
'it\\'s' ~ "\\x41\\u00e9\\101\\n\\q"
s[0] ~ s[-1] ~ s[100]
s[1:4] ~ '|' ~ s[-5:] ~ '|' ~ s[::2] ~ '|' ~ s[::-1] ~ '|' ~ s[5:1:-1] ~ '|' ~ s[:100]
u[1:3] ~ u[-1] ~ u[-2]
u | length
list[1:] ~ list[::-1] ~ list[-1] ~ list[10]
(1, 2, 3)[1:]
list + [4] ~ ''
[1] * 3
'ab' * 2 ~ 2 * 'c'
(1,) ~ () ~ (1, 2)
[1, 'a', none, true, 1.5, {'k': (1,)}]
mixed
d
{'a': 1, 2: [3], none: true}
quote
[quote]
[u]
big ~ ' ' ~ tiny ~ ' ' ~ 1e16 ~ ' ' ~ 123456789012345.0 ~ ' ' ~ 0.1 ~ ' ' ~ 1e15 ~ ' ' ~ 1.0 ~ ' ' ~ 100.25 ~ ' ' ~ 0.0001
f + n ~ ' ' ~ f * 2 ~ ' ' ~ f - 0.5
1_000 ~ 1.5e3 ~ 2E2
nothing
nothing ~ 'x'
nothing is defined
nothing.x
nothing + 1
d.nothing
d.nothing.x
d['b'] ~ d.b ~ d.a.x[1] ~ d['a']['x'][0]
d['items']
d.get('b') ~ d.get('zz') ~ d.get('zz', 4)
d.keys() | list
d.values() | list | length
d.items() | list
d | items | list
d | dictsort
d | dictsort(true)
d | dictsort(reverse=true)
{'x': 2, 'y': 1} | dictsort(by='value')
d | length
d | list
d | tojson
d | tojson(indent=2)
mixed | tojson
mixed | tojson(indent=4)
quote | tojson
quote | tojson(ensure_ascii=true)
u | tojson(ensure_ascii=True)
d | tojson(sort_keys=true)
d | tojson(separators=(',', ':'))
el | tojson(indent=2) ~ ed | tojson(indent=2)
[1.0, 1e22, -0.5, 10000000000000000] | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
nothing | tojson
(1, 2) | tojson
ws | trim ~ '|'
ws.strip() ~ '|' ~ ws.lstrip() ~ '|' ~ ws.rstrip() ~ '|'
s.strip('Hho') ~ s.lstrip('eHl') ~ s.rstrip('elo')
'xxaxx' | trim('x')
s | upper ~ s | lower ~ s.upper() ~ s.lower()
u | upper ~ u | lower
u.title() ~ u | title ~ u | capitalize ~ u.capitalize()
"they're bill's friends-from the (uk) a1b2" | title
"they're bill's friends-from the (uk) a1b2".title()
s | capitalize
s.replace('l', 'L') ~ s.replace('l', '', 2) ~ s | replace('Hello', 'x') ~ 'aaa' | replace('a', 'b', 2)
'abc'.replace('', '-') ~ ''.replace('', 'x') ~ 'é'.replace('', '.')
n | replace(7, 8)
s.split() ~ s.split('l') ~ s.split(' ', 1) ~ ws.split() ~ s.rsplit('l', 1) ~ s.split(none, 1) ~ ws.rsplit(none, 1)
'a,b,,c'.split(',') ~ ''.split(',') ~ ''.split() ~ 'a--b'.split('--')
s.startswith('He') ~ s.endswith('lo') ~ s.startswith(('x', 'H')) ~ s.endswith('x')
'a\\nb\\r\\nc\\n'.splitlines() ~ 'a\\n\\nb'.splitlines(true)
s.find('l') ~ s.rfind('l') ~ s.find('zz') ~ u.find('日') ~ s.count('l') ~ s.index('W')
'-'.join(words) ~ ', '.join(['a']) ~ ''.join([])
'-'.join([1])
s.removeprefix('Hello') ~ s.removesuffix('hello')
'12'.isdigit() ~ 'a1'.isalnum() ~ 'é'.isalpha() ~ ' '.isspace() ~ ''.isdigit()
'a=b=c'.partition('=') ~ 'a=b=c'.rpartition('=') ~ 'abc'.partition('=') ~ 'abc'.rpartition('=')
'{} and {}'.format(1, 'x') ~ '{0}{1}{0}'.format('a', 'b') ~ '{x}{{}}'.format(x=2)
'%s-%s' % (1, 'a') ~ '%s' % 'x' ~ '%d%%' % 5 ~ '%s %s' | format('a', 2)
words | join ~ words | join(', ') ~ people | join('/', attribute='name') ~ 'abc' | join('.')
words | first ~ words | last ~ el | first ~ s | first
words | sort ~ words | sort(case_sensitive=true) ~ list | sort(reverse=true)
people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='name') | map(attribute='name') | join(',')
people | map(attribute='tags') | list | length
people | map(attribute='tags.0') | list
people | map(attribute='zip', default='-') | list
people | selectattr('age', 'gt', 1) | map(attribute='name') | list
people | selectattr('tags') | map(attribute='name') | list
people | rejectattr('tags', 'defined') | map(attribute='name') | list
people | selectattr('name', 'in', ['Bob', 'adam']) | list | length
people | rejectattr('age', 'equalto', 2) | map(attribute='age') | list
list | select('odd') | list ~ list | reject('odd') | list ~ mixed | select | list | length
list | select('ge', 2) | list ~ list | select('divisibleby', 2) | list
words | map('upper') | list ~ words | map('replace', 'a', 'z') | list ~ list | map('string') | join
words | unique | list ~ words | unique(true) | list ~ [1, 1.0, true] | unique | list
words | reverse | list ~ s | reverse ~ range(3) | reverse | list
list | length ~ list | count ~ range(5) | length ~ d | count
list | sum ~ people | sum('age') ~ list | sum(start=10) ~ list | min ~ list | max ~ words | max ~ el | max
'3' | int + 1 ~ 'x' | int ~ 'x' | int(5) ~ '3.7' | int ~ 3.9 | int ~ '0x1f' | int(0, 16) ~ none | int ~ true | int ~ ' 42 ' | int
'3.5' | float + 1 ~ 'x' | float ~ 'x' | float(1.5) ~ 2 | float
-3 | abs ~ (-3) | abs ~ 2.5 | round ~ 3.5 | round ~ 7 | round
nothing | default('x') ~ none | default('x') ~ none | default('x', true) ~ '' | d('y', true) ~ 0 | default(1, boolean=true) ~ nothing | default
mixed | string ~ n | string ~ none | string | length
'<a href="x">&\\'' | e ~ '<b>' | escape ~ '<i>' | safe
'a\\nb\\n\\nc' | indent ~ '|' ~ 'a\\nb' | indent(2, true) ~ '|' ~ 'a\\n\\nb\\n' | indent(3, false, true) ~ '|' ~ 'a\\nb' | indent('> ')
range(3) ~ '' ~ range(1, 4) | list ~ range(10, 0, -3) | list ~ range(0) | list
range(5)[1] ~ range(5)[-1] ~ (range(5)[1:3] | list)
n is number ~ n is integer ~ f is float ~ f is integer ~ yes is number ~ yes is boolean ~ n is boolean
s is string ~ s is sequence ~ s is iterable ~ list is sequence ~ list is iterable ~ d is mapping ~ d is iterable ~ n is iterable ~ d is sequence
none is none ~ nothing is none ~ none is defined ~ none is not none ~ nothing is undefined ~ nothing is iterable
yes is true ~ no is false ~ 1 is true ~ yes is sameas true ~ n is odd ~ n is even ~ n is divisibleby(7) ~ n is divisibleby 2
n is eq 7 ~ n is equalto(7) ~ n is ne 3 ~ n is gt 3 ~ n is lt 3 ~ n is ge 7 ~ n is le(7) ~ n is in [7] ~ n is not in [7]
s is lower ~ 'a' is lower ~ 'A' is upper ~ '1' is upper ~ range is callable ~ n is callable
'a' is defined and 'b' is string or false
none is none and nothing is not defined
n if n is number and n > 3 else 'small'
words[0] in ['a', 'b'] and words[1] not in 'abc'
(1, 2) == (1, 2) and [1] != (1,) and {'a': 1} == {'a': 1.0}
{'a': {'b': 'c'}}.a.b
{'a': 1}['a'] ~ [1, 2].0 ~ [[1, 2], 3].0.1
dict(a=1, b='x') ~ dict({'c': 1}, d=2)
[1, 2,] ~ {'a': 1,} ~ (1,)
s|length > 5 and s|length < 100
-n|abs ~ ' ' ~ +n ~ ' ' ~ - n ~ ' ' ~ --n
s.nothing
none.x ~ none['x']
n['x'] ~ n.x
list.x ~ list['x'] ~ list['0']
s['upper']() ~ s['x']
d._private ~ s.__class__
s.__class__.__mro__
d.update({'a': 1})
list.append(4)
'a' + 1
1 + 'a'
1 < 'a'
none + 1
none | length
n | length
[1, 2][nothing]
{}[[]]
'abc'['b']
1 / 0
1 % 0
1.0 // 0
[] + ()
nothing()
n()
s.upper(1)
s | upper(1)
s | replace('a')
s | nofilter
s is notest
list | first.x
loop
'a' ~ none ~ true ~ 1.0 ~ [] ~ {}
[none, true, 'x'] | join('-')
range(1000000)
range(1, 5, 0)
raise_exception('No! ' ~ n)
namespace(a=1, b=[2]).b
strftime_now('%Y') | length
{'a': 'x', 'a': 'y'}
'é' < 'z' ~ ('Z' < 'a')
[3, 1] | sort | first ~ ['x'] | last
'a b'.split(' ')[1][0]
(list | list)[0] ~ (s | list | length)
people[0].name.upper()[::-1]
'%s' % none ~ '%s' % [1]
'x' if none is none
2.675 | round(2) ~ ' ' ~ 2.5 | round(1) ~ ' ' ~ -0.4 | round ~ ' ' ~ 1e22 | round(3) ~ ' ' ~ 0.125 | round(2) ~ ' ' ~ 7 | round(2)
-5 // 2 ~ ' ' ~ -5 % 2 ~ ' ' ~ 5 // -2 ~ ' ' ~ 5.5 // -2 ~ ' ' ~ -5.5 % 2 ~ ' ' ~ 2 ** 10 ~ ' ' ~ 2 ** 0.5 ~ ' ' ~ 2.0 ** 3
1 and 0 ~ ' ' ~ (1 or 0) ~ ' ' ~ ('' or 'x') ~ ' ' ~ (none and 1)
'a' in nothing
none in [none] ~ nothing in [1]
'' in '' ~ '' in 'a'
1 in 'a'
'a' in none
'%' ~ 5
[ws, quote] | tojson
'\\ufb01 \\u01c4' | length
""".strip("\n").split("\n")
STATEMENTS = [
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}empty{% endfor %}",
    "{% for x in nothing %}{{ x }}{% else %}undefined{% endfor %}",
    "{% for x in none %}{{ x }}{% endfor %}",
    "{% for x in 5 %}{{ x }}{% endfor %}",
    "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }} {% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}{{ x }}{% endfor %}|",
    "{% for x in range(3) %}{% for y in range(3) %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% set x = 1 %}{% for i in range(3) %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}{{ ns.b is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}",
    "{% set a = 1 if yes else 2 %}{{ a }}",
    "{% set d.x = 1 %}",
    "{% if yes %}{% set v = 5 %}{% endif %}{{ v }}{% if no %}{% set w = 5 %}{% endif %}{{ w is defined }}",
    "{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(a=4, c=5) }}{{ m() }}{{ m(1, c='x') | upper }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro m() %}{{ late }}{% endmacro %}{% set late = 'seen' %}{{ m() }}",
    "{% set o = 1 %}{% macro m() %}{% set o = 2 %}{{ o }}{% endmacro %}{{ m() }}{{ o }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m.name }}{{ m is callable }}",
    "{% macro m(x) -%}   a {{ x }} b   {%- endmacro %}>{{ m('c') }}<",
    "{% macro m() %}a{% endmacro %}{% set x = m() %}{{ x ~ x }}{{ m() + 'b' }}{{ m() | length }}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x | length }}",
    "{% set x | upper | trim %}  a{{ n }}b {% endset %}{{ x }}|",
    "{% if no %}a{% elif none %}b{% elif n %}c{% else %}d{% endif %}",
    "{% if nothing %}a{% else %}b{% endif %}",
    "  {% if yes %}\n  a\n  {% endif %}\n  b\n",
    "  {%+ if yes %}\n  a\n  {%+ endif %}\n  b\n",
    "  {%- if yes -%}\n  a\n  {%- endif -%}\n  b\n",
    "  {% if yes +%}\n  a\n  {% endif +%}\n  b\n\n",
    "x {# c #} y\n  {# c #}\n z {#- c -#} w\n{#+ c +#}\nq",
    "{{ 'a' }}\n{{- 'b' }}\n{{ 'c' -}}\n {{ 'd' }}\n",
    "a\n   {{ n }}\n{%- for i in range(2) %}\n  {{ i }}\n{%- endfor %}\nend\n\n\n",
    "\t{% set a = 1 %}\r\n{{ a }}\r\nb\rc\r\n",
    "a {% raw %} {{ x }} {% endraw %} b\n  {% raw -%}\n x {%- endraw %}\n c",
    "{{ '}}' }}{{ '%}' }}{{ \"{{\" }}{% if '%}' %}{{ {'a': {'b': 1}}['a']['b'] }}{% endif %}",
    "{{ '{#' }} {#  {{ nope }} {% nope %} #}x",
    "{{ 1 }}{% generation %}{{ n }}{% set z = 1 %}{% endgeneration %}{{ z }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% with x = 1 %}{{ x }}{% set y = 2 %}{% endwith %}{{ x }}{{ y }}",
    "{% with %}{% set y = 2 %}{{ y }}{% endwith %}",
    "{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{{ n }}{% endcall %}",
    "{% macro w() %}<{{ caller(1, b=2) }}>{% endmacro %}{% call(a, b, c=3) w() %}{{ a }}{{ b }}{{ c }}{% endcall %}",
    "{{ raise_exception('stop: ' + s) }}",
    "{{ x",
    "{% if x %}",
    "{% endif %}",
    "{% for x in y %}{% endif %}",
    "{# open",
    "{{ a b }}",
    "{{ (1 }}",
    "{{ 1) }}",
    "{{ 'open }}",
    "{% for %}{% endfor %}",
    "{% break %}",
    "{{ }}",
    "{% %}",
    "{% nonsense %}",
    "{{ a | }}",
    "{{ a is }}",
    "{{ f(a=1, 2) }}",
    "{{ [1, 2 }}",
    "{{ {1: 2 }}",
    "{{ 1 + }}",
    "{{ @ }}",
    "{% set x %}a",
    "{% raw %}a",
    "{% for i in range(3) %}{{ loop.index }}{% else %}{{ loop }}{% endfor %}",
    "{% for i in list %}{% set y = i %}{% endfor %}{{ y is defined }}",
    "{% for i in [1, 2] %}{% if loop.first %}{% set k = 'a' %}{% endif %}{{ k }}{% endfor %}",
    "{% set k = 'o' %}{% for i in [1, 2] %}{{ k }}{% set k = i %}{{ k }}{% endfor %}{{ k }}",
    "{% for p in people %}{{ p.name }}{% for t in p.tags %}{{ t }}{% else %}-{% endfor %}{% endfor %}",
    "{% for p in people | sort(attribute='age', reverse=true) %}{{ p.age }}{% endfor %}",
    "{%if yes%}tight{%endif%}{{n}}{{-n}}{{ n}}",
    "{% if n == 7 and (s.startswith('H') or no) and not none %}ok{% endif %}",
    "a{{ 'b' if yes }}{{ 'c' if no }}d",
    "{% set messages = [{'role': 'x'}] + [{'role': 'y'}] %}{{ messages[-1]['role'] }}{{ messages | map(attribute='role') | join }}",
    "{{ [1, [2, [3, 'x']], (4,), {'a': none}] }}",
    "{% set x = {'a': 1} %}{% set y = dict(x, b=2) %}{{ y }}{{ x }}",
]


def cases(builtins):
    for name, template in list(builtins.items()) + list(TEMPLATES.items()):
        for title, messages, tools in CONVERSATIONS:
            for prompt in (False, True):
                variables = dict(SPECIALS, messages=messages, tools=tools, documents=None, add_generation_prompt=prompt)
                yield "%s, %s, %s" % (name, title, prompt), template, variables
    for expression in EXPRESSIONS:
        yield expression, "{{ " + expression + " }}", DATA
    for statement in STATEMENTS:
        yield statement, statement, dict(DATA)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        builtins = json.load(f)
    for name, template, variables in cases(builtins):
        case = {"name": name, "template": template, "variables": variables}
        try:
            case["text"] = environment.from_string(template).render(**variables)
        except Refusal as refusal:
            case["error"] = str(refusal)
        except Exception as error:  # whatever Python throws, the template is wrong
            case["error"] = ""
            case["why"] = repr(error)
        sys.stdout.write(json.dumps(case) + "\n")


main()
