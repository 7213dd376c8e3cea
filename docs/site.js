/* A click on a panel enlarges it, with the legend of its figure beside it. Without this script the link opens the file itself. */
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.enlarge");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const dialog = document.createElement("dialog");
  const close = document.createElement("button");
  const shown = link.querySelector("img");
  const legend = link.closest("figure").querySelector('img[src$="legend.svg"]');
  dialog.className = "enlarged";
  dialog.setAttribute("aria-label", "Enlarged figure");
  close.textContent = "Close ✕";
  dialog.append(close, shown.cloneNode());
  if (legend && legend !== shown) dialog.append(legend.cloneNode());
  dialog.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    dialog.remove();
    link.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
});
