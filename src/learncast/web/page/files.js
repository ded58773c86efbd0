// The user's own files, dropped on the page or chosen in a dialog.

import { node } from "./part.js";

/** Most bytes of a file that the server accepts. */
const MOST = 20 * 2 ** 20;

/**
 * Accept files, with a button in `box` or dropped anywhere on the page.
 * @param {() => object} panel returns the open panel
 * @param {(description: object) => void} opened called with the description of the panel for the file
 * @param {(message: string) => void} showStatus
 * @param {(message: string) => void} began called when a file is read
 * @param {() => void} ended called when it has been read
 */
export function acceptFiles(box, panel, opened, showStatus, began, ended) {
  const input = node("input", { type: "file", id: "file" });
  const label = node("label", { htmlFor: "file", className: "drop" });
  const text = node("span");
  label.append(node("b", { textContent: "Your own data" }), text);
  input.addEventListener("change", () => {
    if (input.files.length) send(input.files[0]);
    input.value = "";
  });
  box.replaceChildren(label, input);

  const send = async (file) => {
    if (file.size > MOST) {
      showStatus(`${file.name} has ${Math.round(file.size / 2 ** 20)} MB; the limit is 20 MB.`);
      return;
    }
    showStatus("");
    began(`Reading ${file.name} …`);
    const answer = await fetch(`api/${panel().name}/file`, {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream", "X-Name": encodeURIComponent(file.name) },
      body: file,
    }).catch(() => null);
    ended();
    const result = answer ? await answer.json().catch(() => ({})) : { error: "The server does not answer." };
    if (!answer || !answer.ok) showStatus(result.error || `The server rejected the file (${answer.status}).`);
    else {
      opened(result);
      showStatus(`Opened ${file.name}; it is kept in memory only.`);
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
