// The user's own files, dropped on the page or chosen in a dialog.

import { node } from "./part.js";

/** Most bytes of a file that the server accepts. */
const MOST = 20 * 2 ** 20;
/** Names of the files that were opened, by token. */
const names = new Map();

/** The name of an opened file. */
export function fileName(token) {
  return names.get(token) || "a file";
}

/**
 * Accept files, with a button in `box` or dropped anywhere on the page.
 * @param {() => object} panel returns the open panel
 * @param {(description: object, name: string) => void} opened called with the description of the panel for the file, and its name
 * @param {(message: string) => void} rejected called with the reason if a file cannot be used
 * @param {(message: string) => void} began called when a file is read
 * @param {() => void} ended called when it has been read
 */
export function acceptFiles(box, panel, opened, rejected, began, ended) {
  const input = node("input", { type: "file", id: "file" });
  const label = node("label", { htmlFor: "file", className: "drop" });
  const text = node("span");
  label.append(node("b", { textContent: "Open a file" }), text);
  input.addEventListener("change", () => {
    if (input.files.length) send(input.files[0]);
    input.value = "";
  });
  box.replaceChildren(label, input);

  const send = async (file) => {
    if (file.size > MOST) {
      rejected(`${file.name} has ${Math.round(file.size / 2 ** 20)} MB; the limit is 20 MB.`);
      return;
    }
    began(`Reading ${file.name} …`);
    const answer = await fetch(`api/${panel().name}/file`, {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream", "X-Name": encodeURIComponent(file.name) },
      body: file,
    }).catch(() => null);
    ended();
    const result = answer ? await answer.json().catch(() => ({})) : { error: "The server does not answer." };
    if (!answer || !answer.ok) rejected(result.error || `The server rejected ${file.name}.`);
    else {
      const token = result.examples?.[0]?.changes.data;
      if (token) names.set(token, file.name);
      opened(result, file.name);
    }
  };

  const accepts = (event) => panel()?.drops && [...(event.dataTransfer?.types || [])].includes("Files");
  addEventListener("dragover", (event) => {
    if (!accepts(event)) return;
    event.preventDefault();
    label.classList.add("over");
  });
  for (const end of ["dragleave", "drop"]) addEventListener(end, () => label.classList.remove("over"));
  addEventListener("drop", (event) => {
    if (!accepts(event)) return;
    event.preventDefault();
    send(event.dataTransfer.files[0]);
  });
  return () => {
    box.hidden = !panel().drops;
    text.textContent = panel().drops ? `: drop or choose ${panel().drops}. At most 20 MB, kept in memory only.` : "";
  };
}
